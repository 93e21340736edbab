// Settings as text by name, those used last, and presets by name. All are kept in this browser.

const LAST = "llamina.settings";
const PRESETS = "llamina.presets";

/** The settings used last, for a new conversation. */
export const last = () => read(LAST);
export const keepLast = (settings) => localStorage.setItem(LAST, JSON.stringify(settings));

/** Presets by name. */
export const presets = () => read(PRESETS);

export function keepPreset(name, settings) {
  localStorage.setItem(PRESETS, JSON.stringify({ ...presets(), [name]: settings }));
}

export function removePreset(name) {
  const { [name]: _, ...others } = presets();
  localStorage.setItem(PRESETS, JSON.stringify(others));
}

function read(key) {
  try {
    const found = JSON.parse(localStorage.getItem(key) ?? "{}");
    return found !== null && typeof found === "object" && !Array.isArray(found) ? found : {};
  } catch {
    return {};
  }
}
