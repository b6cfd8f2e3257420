/*
 * The layout of a graph of steps: layers, order in a layer, coordinates; and
 * its critical path. Pure functions.
 *
 * A step's layer is the length of the longest way to it. An edge over several
 * layers gets a bend in each layer between. Sweeps order the layers by the
 * medians of neighbours, and the order with the fewest crossings stays. The
 * coordinates are the nearest to the means of neighbours that keep order and
 * gaps (isotonic regression).
 */

const SWEEPS = 12;
const MAX_BENDS = 6000; /* of more, long edges are drawn straight */
const BEND_SIZE = 4;
const BEND_WEIGHT = 4; /* keeps long edges straight */
const LONE_WEIGHT = 0.01; /* a node without edges goes where there is room */

/* Returns the parents of each step, by key, as far as they are steps. */
function parentsOf(steps) {
  const known = new Set(steps.map((step) => step.key));
  const parents = (step) => [...new Set(step.after || [])].filter((key) => known.has(key) && key !== step.key);
  return new Map(steps.map((step) => [step.key, parents(step)]));
}

/*
 * Returns {order, layer, parents}: the keys, so that parents come first, and
 * the layer and the parents of each. Steps of a cycle, which no definition
 * has, come last.
 */
export function layersOf(steps) {
  const parents = parentsOf(steps);
  const children = new Map(steps.map((step) => [step.key, []]));
  const waits = new Map();
  const layer = new Map();
  for (const [key, list] of parents) {
    waits.set(key, list.length);
    list.forEach((parent) => children.get(parent).push(key));
  }
  const order = steps.map((step) => step.key).filter((key) => !waits.get(key));
  for (const key of order) {
    layer.set(key, Math.max(-1, ...parents.get(key).map((parent) => layer.get(parent))) + 1);
    for (const child of children.get(key)) {
      waits.set(child, waits.get(child) - 1);
      if (waits.get(child) === 0) {
        order.push(child);
      }
    }
  }
  for (const { key } of steps) {
    if (!layer.has(key)) {
      layer.set(key, 0);
      order.push(key);
    }
  }
  return { order, layer, parents };
}

/*
 * Returns the layers as arrays of nodes, whose `in` and `out` are neighbours
 * in the layers beside, and the edges with the nodes on their ways. Bends are
 * nodes without a key.
 */
function withBends(steps) {
  const { order, layer, parents } = layersOf(steps);
  const nodes = new Map();
  const layers = [];
  const edges = [];
  let bends = 0;
  const put = (key, at) => {
    const node = { key, layer: at, in: [], out: [] };
    (layers[at] ??= []).push(node);
    return node;
  };
  order.forEach((key) => nodes.set(key, put(key, layer.get(key))));
  for (const to of order) {
    for (const from of parents.get(to)) {
      const way = [nodes.get(from)];
      const between = layer.get(to) - layer.get(from) - 1;
      if (bends + between <= MAX_BENDS) {
        bends += Math.max(between, 0);
        for (let i = 1; i <= between; i++) {
          way.push(put(undefined, layer.get(from) + i));
        }
      }
      way.push(nodes.get(to));
      for (let i = 1; i < way.length; i++) {
        if (way[i].layer === way[i - 1].layer + 1) {
          way[i - 1].out.push(way[i]);
          way[i].in.push(way[i - 1]);
        }
      }
      edges.push({ from, to, way });
    }
  }
  return { layers, edges, nodes };
}

/* Returns how many edges from the layer before cross: a Fenwick tree counts their ends. */
function crossings(layer, width) {
  const tree = new Int32Array(width + 1);
  let total = 0;
  let n = 0;
  for (const node of layer) {
    const ends = node.in.map((other) => other.at);
    for (const end of ends) {
      total += n;
      for (let i = end + 1; i > 0; i -= i & -i) {
        total -= tree[i];
      }
    }
    for (const end of ends) {
      n++;
      for (let i = end + 1; i <= width; i += i & -i) {
        tree[i]++;
      }
    }
  }
  return total;
}

function median(values) {
  const sorted = values.sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function number(layer) {
  layer.forEach((node, i) => {
    node.at = i;
  });
}

/* Orders a layer by its neighbours in the layer on one side, 'in' or 'out'. */
function orderBy(layer, side) {
  for (const node of layer) {
    node.want = node[side].length ? median(node[side].map((other) => other.at)) : node.at;
  }
  layer.sort((a, b) => a.want - b.want || a.at - b.at);
  number(layer);
}

/* Orders the nodes of each layer for few crossings. */
function orderLayers(layers) {
  const count = () => layers.reduce((sum, layer, i) => sum + (i ? crossings(layer, layers[i - 1].length) : 0), 0);
  let best = Infinity;
  let kept = layers;
  layers.forEach(number);
  for (let sweep = 0; sweep <= SWEEPS && best > 0; sweep++) {
    if (sweep % 2) {
      layers.forEach((layer) => orderBy(layer, 'in'));
    } else if (sweep) {
      layers.toReversed().forEach((layer) => orderBy(layer, 'out'));
    }
    const now = count();
    if (now < best) {
      best = now;
      kept = layers.map((layer) => [...layer]);
    }
  }
  kept.forEach((layer, i) => {
    layers[i] = layer;
    number(layer);
  });
}

/* Sets the centres of a layer's nodes: as near to what they want as order and gaps allow. */
function place(layer, gap) {
  const blocks = [];
  const offsets = [];
  let offset = 0;
  for (const [i, node] of layer.entries()) {
    offset += i ? (layer[i - 1].size + node.size) / 2 + gap : 0;
    offsets.push(offset);
    const weight = node.weight;
    let block = { sum: (node.want - offset) * weight, weight, n: 1 };
    while (blocks.length && blocks.at(-1).sum / blocks.at(-1).weight > block.sum / block.weight) {
      const last = blocks.pop();
      block = { sum: last.sum + block.sum, weight: last.weight + block.weight, n: last.n + block.n };
    }
    blocks.push(block);
  }
  let i = 0;
  for (const block of blocks) {
    for (let n = block.n; n > 0; n--, i++) {
      layer[i].centre = block.sum / block.weight + offsets[i];
    }
  }
}

function placeAll(layers, gap) {
  const mean = (nodes) => nodes.reduce((sum, node) => sum + node.centre, 0) / nodes.length;
  const near = (node, sweep) => {
    if (sweep >= SWEEPS - 2) {
      return [...node.in, ...node.out];
    }
    return sweep % 2 ? node.out : node.in;
  };
  for (const layer of layers) {
    layer.forEach((node) => {
      node.want = 0;
    });
    place(layer, gap);
  }
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const layer of sweep % 2 ? layers.toReversed() : layers) {
      for (const node of layer) {
        const others = near(node, sweep);
        node.want = others.length ? mean(others) : node.centre;
        if (node.weight === LONE_WEIGHT) {
          node.want = mean(layer);
        }
      }
      place(layer, gap);
    }
  }
}

/* Returns the path through points [along, across]; its curves leave and arrive along the axis. */
function pathOf(points, down) {
  const xy = (along, across) => (down ? `${across} ${along}` : `${along} ${across}`);
  let path = `M${xy(...points[0])}`;
  for (let i = 1; i < points.length; i++) {
    const [along, across] = points[i];
    const [before, from] = points[i - 1];
    const half = (before + along) / 2;
    const straight = Math.abs(across - from) < 0.5;
    path += straight ? `L${xy(along, across)}` : `C${xy(half, from)} ${xy(half, across)} ${xy(along, across)}`;
  }
  return path;
}

/* Sets where each node begins and ends along the axis; returns the whole length. */
function stack(layers, depthOf, layerGap, down) {
  let along = 0;
  for (const layer of layers) {
    const depth = Math.max(...layer.map(depthOf));
    for (const node of layer) {
      node.begin = along;
      node.end = along + (down && node.key !== undefined ? depthOf(node) : depth);
    }
    along += depth + layerGap;
  }
  return Math.max(0, along - layerGap);
}

/*
 * Returns {width, height, nodes: [{key, layer, x, y, width, height}],
 * edges: [{from, to, path}]} of steps [{key, after}]. sizeOf(step) returns
 * [width, height]. down: layers are rows, else they are columns.
 */
export function layout(steps, sizeOf, { down = false, gap = 16, layerGap = 44 } = {}) {
  const { layers, edges, nodes } = withBends(steps);
  const sizes = new Map(steps.map((step) => [step.key, sizeOf(step)]));
  const side = down ? 0 : 1;
  const all = layers.flat();
  const depthOf = (node) => sizes.get(node.key)?.[1 - side] ?? 0;
  for (const node of all) {
    node.size = sizes.get(node.key)?.[side] ?? BEND_SIZE;
    node.weight = node.key === undefined ? BEND_WEIGHT : node.in.length + node.out.length ? 1 : LONE_WEIGHT;
  }
  orderLayers(layers);
  placeAll(layers, gap);
  const length = stack(layers, depthOf, layerGap, down);
  const least = all.reduce((min, node) => Math.min(min, node.centre - node.size / 2), Infinity);
  const breadth = all.reduce((max, node) => Math.max(max, node.centre + node.size / 2 - least), 0);
  const at = (node) => Math.round((node.centre - least) * 2) / 2;
  const rect = (node) => {
    const near = at(node) - node.size / 2;
    const far = node.end - node.begin;
    return down ? { x: near, y: node.begin, width: node.size, height: far } : { x: node.begin, y: near, width: far, height: node.size };
  };
  const points = (way) => way.flatMap((node) => [[node.begin, at(node)], [node.end, at(node)]]).slice(1, -1);
  return {
    width: down ? breadth : length,
    height: down ? length : breadth,
    nodes: [...nodes.values()].map((node) => ({ key: node.key, layer: node.layer, ...rect(node) })),
    edges: edges.map(({ from, to, way }) => ({ from, to, path: pathOf(points(way), down) })),
  };
}

/*
 * Returns {keys, end}: the steps that decide when the run ends, the first one
 * first, and that end. Times are in ms. facts.get(key) is {start, end,
 * expected}: start and end as far as they have been, expected the usual
 * duration. Rule any waits for the first of its parents, the others for the last.
 */
export function criticalPath(steps, facts, now) {
  const { order, parents } = layersOf(steps);
  const rules = new Map(steps.map((step) => [step.key, step.rule]));
  const ends = new Map();
  const causes = new Map();
  const latest = (a, b) => (b === undefined || ends.get(a) > ends.get(b) ? a : b);
  const earliest = (a, b) => (b === undefined || ends.get(a) < ends.get(b) ? a : b);
  for (const key of order) {
    const fact = facts.get(key) || {};
    const decides = rules.get(key) === 'any' ? earliest : latest;
    const cause = parents.get(key).reduce((found, parent) => decides(parent, found), undefined);
    const start = fact.start ?? Math.max(now, ends.get(cause) ?? now);
    causes.set(key, cause);
    ends.set(key, fact.end ?? Math.max(now, start + (fact.expected ?? 0)));
  }
  const last = order.reduce((found, key) => latest(key, found), undefined);
  const keys = [];
  for (let key = last; key !== undefined; key = causes.get(key)) {
    keys.unshift(key);
  }
  return { keys, end: ends.get(last) ?? null };
}
