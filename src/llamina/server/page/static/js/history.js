// From counters of a server to numbers over time: rates between snapshots, percentiles and shares of the last half minute.

const KEPT = 300; // snapshots
const WINDOW = 30; // seconds that percentiles and shares look back

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** Models' statistics as if they were one model's. */
export function combined(stats) {
  if (stats.length < 2) return stats[0];
  const [first] = stats;
  const merge = (values) => {
    if (typeof values[0] === "number") return sum(values);
    if (Array.isArray(values[0])) return values[0].map((_, index) => sum(values.map((value) => value[index])));
    const keys = new Set(values.flatMap((value) => Object.keys(value)));
    return Object.fromEntries([...keys].map((key) => [key, merge(values.map((value) => value[key] ?? 0))]));
  };
  const result = merge(stats);
  for (const name of Object.keys(first.histograms)) result.histograms[name].bounds = first.histograms[name].bounds;
  result.memory.available = first.memory.available; // the machine's, not the models'
  return result;
}

/** The value below which a share of a histogram's observations is; null if there are none. */
export function percentile({ bounds, counts }, share) {
  const wanted = share * sum(counts);
  if (!wanted) return null;
  let before = 0;
  for (const [index, count] of counts.entries()) {
    if (before + count >= wanted) {
      const low = index ? bounds[index - 1] : 0;
      const high = bounds[index] ?? low;
      return low + ((high - low) * (wanted - before)) / count;
    }
    before += count;
  }
  return bounds.at(-1);
}

/** What happened between two snapshots of a histogram. */
const difference = (now, then) => ({
  bounds: now.bounds,
  counts: now.counts.map((count, index) => count - (then?.counts[index] ?? 0)),
  total: now.total - (then?.total ?? 0),
});

/** Points over time, each with the values of all plots. */
export class History {
  #snapshots = []; // {time, stats}
  points = [];

  /** Add a snapshot: what was counted, and the sequences under way. Counters that went down are those of a model that was loaded again: history begins anew. */
  add(time, stats, sequences) {
    const last = this.#snapshots.at(-1);
    if (last && stats.steps < last.stats.steps) this.#snapshots = [];
    const before = this.#snapshots.at(-1);
    this.#snapshots.push({ time, stats });
    if (this.#snapshots.length > KEPT) this.#snapshots.shift();
    const long = this.#snapshots.find((snapshot) => time - snapshot.time <= WINDOW);
    this.points.push(point(time, stats, sequences, before, long));
    if (this.points.length > KEPT) this.points.shift();
  }
}

function point(time, stats, sequences, before, long) {
  const { gauges, memory, histograms } = stats;
  const seconds = before ? time - before.time : Infinity;
  const since = (name) => stats[name] - (before?.stats[name] ?? stats[name]);
  const steps = difference(histograms.batch_sequences, before?.stats.histograms.batch_sequences ?? histograms.batch_sequences);
  const computed = stats.prompt_tokens - long.stats.prompt_tokens;
  const cached = stats.cached_tokens - long.stats.cached_tokens;
  const first = difference(histograms.time_to_first_token_seconds, long.stats.histograms.time_to_first_token_seconds);
  const each = difference(histograms.inter_token_seconds, long.stats.histograms.inter_token_seconds);
  const ended = sum(Object.values(stats.requests)) - sum(Object.values(before?.stats.requests ?? stats.requests));
  return {
    time,
    generated: since("generated_tokens") / seconds,
    prompt: since("prompt_tokens") / seconds,
    ended: ended / seconds,
    running: sequences.filter(({ state }) => state === "running").length,
    waiting: sequences.filter(({ state }) => state === "waiting").length,
    batch: sum(steps.counts) ? steps.total / sum(steps.counts) : 0,
    pages: gauges.pages ? (100 * gauges.pages_used) / gauges.pages : 0,
    kept: gauges.pages ? (100 * gauges.pages_kept) / gauges.pages : 0,
    hits: computed + cached ? (100 * cached) / (computed + cached) : null,
    firstMedian: percentile(first, 0.5),
    firstSlow: percentile(first, 0.95),
    eachMedian: percentile(each, 0.5),
    eachSlow: percentile(each, 0.95),
    resident: memory.resident,
    available: memory.available,
    preemptions: stats.preemptions,
  };
}
