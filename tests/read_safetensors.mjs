// read_safetensors.mjs - an independent reader: node tests/read_safetensors.mjs FILE... prints, for every
// tensor in the order of its data, "name dtype [shape] sha256-of-its-bytes".
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const SIZES = {
  BOOL: 1, U8: 1, I8: 1, F8_E5M2: 1, F8_E4M3: 1, I16: 2, U16: 2, F16: 2, BF16: 2, I32: 4, U32: 4, F32: 4, F64: 8,
  I64: 8, U64: 8,
};

function tensors(path) {
  const file = readFileSync(path);
  const n = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(file.subarray(8, 8 + n)));
  const data = file.subarray(8 + n);
  if (n % 8 !== 0) throw new Error(`${path}: the data begins at ${8 + n}, not a multiple of 8`);
  delete header.__metadata__;
  const entries = Object.entries(header).sort(([, a], [, b]) => a.data_offsets[0] - b.data_offsets[0]
    || a.data_offsets[1] - b.data_offsets[1]);
  let end = 0;
  for (const [name, t] of entries) {
    const [begin, stop] = t.data_offsets;
    const bytes = t.shape.reduce((a, b) => a * b, 1) * SIZES[t.dtype];
    if (begin !== end || stop - begin !== bytes) throw new Error(`${path}: ${name} has bytes ${begin} to ${stop}`);
    if (begin % SIZES[t.dtype] !== 0) throw new Error(`${path}: ${name} is not aligned`);
    end = stop;
  }
  if (end !== data.length) throw new Error(`${path}: ${data.length - end} bytes follow the last tensor`);
  return entries.map(([name, t]) => {
    const hash = createHash("sha256").update(data.subarray(...t.data_offsets)).digest("hex");
    return `${name} ${t.dtype} [${t.shape.join(",")}] ${hash}`;
  });
}

for (const path of process.argv.slice(2)) {
  for (const line of tensors(path)) console.log(line);
}
