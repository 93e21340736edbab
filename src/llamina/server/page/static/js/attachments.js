// Files that go along with a message: pictures and sounds as data URLs, everything else as text.

import { h, icon, iconButton, size } from "./dom.js";

const MOST = 7 << 20; // bytes of one file; the server's limit for a whole request is 10 MiB
const PICTURES = new Set(["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"]);
const ICONS = { text: "file", audio: "sound" };

/** A file as an attachment. Throws for one that is too large, or none of what can be sent. */
export async function readAttachment(file) {
  if (file.size > MOST) throw new Error(`${file.name} has ${size(file.size)}: at most ${size(MOST)} can be sent.`);
  if (PICTURES.has(file.type)) return { kind: "image", name: file.name, size: file.size, data: await dataUrl(file) };
  const bytes = new Uint8Array(await file.arrayBuffer());
  const format = soundFormat(bytes);
  if (format) return { kind: "audio", name: file.name, size: file.size, data: await dataUrl(new Blob([bytes], { type: `audio/${format}` })) };
  try {
    const data = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (data.includes("\0")) throw new Error();
    return { kind: "text", name: file.name, size: file.size, data };
  } catch {
    throw new Error(`${file.name} is neither text nor a picture (PNG, JPEG, WebP, GIF, BMP) nor a sound (WAV, MP3, FLAC).`);
  }
}

/** The format of a sound, by its first bytes: browsers name its type in many ways. "" if it is none. */
function soundFormat(bytes) {
  const begin = String.fromCharCode(...bytes.subarray(0, 12));
  if (/^RIFF....WAVE/s.test(begin)) return "wav";
  if (begin.startsWith("fLaC")) return "flac";
  const frame = bytes[0] === 0xff && (bytes[1] & 0xe6) === 0xe2; // of layer III
  return frame || begin.startsWith("ID3") ? "mp3" : "";
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/** Elements that show attachments; with `remove` each has a button for it. */
export function attachmentList(attachments = [], remove = null) {
  if (!attachments?.length) return [];
  const items = attachments.map((attachment, index) =>
    h(
      "li",
      { class: "attachment" },
      attachment.kind === "image" ? h("img", { src: attachment.data, alt: attachment.name }) : icon(ICONS[attachment.kind]),
      h("span", { class: "attachment-name" }, attachment.name),
      h("span", { class: "faint" }, size(attachment.size)),
      remove && iconButton("close", `Remove ${attachment.name}`, () => remove(index)),
    ),
  );
  return [h("ul", { class: "attachments", "aria-label": "Attachments" }, ...items)];
}
