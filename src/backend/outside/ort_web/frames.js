// Frames of the protocol: a header in JSON, and tensors in their memory layout.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const MAGIC = 0x31424649;
export const ARRAYS = {
  f32: Float32Array,
  f64: Float64Array,
  i8: Int8Array,
  i16: Int16Array,
  i32: Int32Array,
  i64: BigInt64Array,
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  u64: BigUint64Array,
  bool: Uint8Array,
};

/// The header of a frame, and its tensors by name: `{dtype, shape, data}`.
export function readFrame(buffer) {
  const view = new DataView(buffer);
  const length = view.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 16, length)));
  let place = 16 + length;
  const tensors = {};
  for (const { name, dtype, shape } of header.tensors ?? []) {
    const array = ARRAYS[dtype];
    if (!array) throw new Refused("unsupported", `no tensors of ${dtype} in the browser here`);
    const end = place + shape.reduce((product, size) => product * size, array.BYTES_PER_ELEMENT);
    tensors[name] = { dtype, shape, data: new array(buffer.slice(place, end)) };
    place = end;
  }
  return [header, tensors];
}

/// A frame of a header and tensors `[name, {dtype, shape, data}]`.
export function frame(header, tensors) {
  const described = tensors.map(([name, { dtype, shape }]) => ({ name, dtype, shape }));
  const text = new TextEncoder().encode(JSON.stringify({ ...header, tensors: described }));
  const parts = tensors.map(([, { data }]) => data);
  const begin = new DataView(new ArrayBuffer(16));
  begin.setUint32(0, MAGIC, true);
  begin.setUint32(4, text.length, true);
  begin.setBigUint64(8, BigInt(parts.reduce((sum, part) => sum + part.byteLength, 0)), true);
  return new Blob([begin, text, ...parts]);
}
