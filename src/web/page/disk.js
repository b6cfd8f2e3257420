/*
 * The last readings of the disk watch, by file system.
 */
import { Empty, Remote, h, millis } from './ui.js';
import { Plot } from './plot.js';

const EVERY_MS = 60000;
const COLOURS = ['--accent', '--warn', '--muted', '--bad'];

/* Returns {times, series}; a file system has a gap where it was not read. */
export function collect(readings) {
  const times = [...new Set(readings.map((r) => millis(r.ts) / 1000))].sort((a, b) => a - b);
  const paths = [...new Set(readings.map((r) => r.path))].sort();
  const of = (path) => new Map(readings.filter((r) => r.path === path).map((r) => [millis(r.ts) / 1000, r.percent]));
  return { times, series: paths.map((path, i) => {
    const values = of(path);
    return { label: path, color: COLOURS[i % COLOURS.length], values: times.map((t) => values.get(t) ?? null) };
  }) };
}

export function Disk({ api }) {
  return h(Remote, { api, path: '../../admin/resources/disk', every: EVERY_MS }, ({ readings }) => (readings.length
    ? h(Plot, { title: 'Disk in use', ...collect(readings), format: (v) => (v === null ? '–' : `${Math.round(v)}%`) })
    : h(Empty, null, 'No reading yet: maintenance reads the disks once a minute.')));
}
