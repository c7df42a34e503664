import { DocstoreError } from './errors';

/** maxIDBytes is the longest id. */
const maxIDBytes = 1024;

/** ID is an id: text, encoded as UTF-8, or bytes. */
export type ID = string | Uint8Array;

/** invalid returns the error of a wrong argument. */
export function invalid(message: string): DocstoreError {
  return new DocstoreError('invalid_argument', message);
}

/** checkNumber refuses values that are not numbers from least to most. Timers take up to 2**31 - 1. */
export function checkNumber(name: string, value: unknown, least: number, most = 2 ** 31 - 1): asserts value is number {
  if (typeof value !== 'number' || !(value >= least && value <= most)) {
    throw invalid(`${name} is ${String(value)}: want a number from ${least} to ${most}`);
  }
}

/** checkCount is checkNumber for integers. */
export function checkCount(name: string, value: unknown, least: number, most?: number): asserts value is number {
  checkNumber(name, value, least, most);
  if (!Number.isInteger(value)) throw invalid(`${name} is ${value}: want an integer`);
}

/** checkSignal refuses values that are not an AbortSignal, of this realm or another. */
export function checkSignal(value: unknown): asserts value is AbortSignal | undefined {
  if (value === undefined) return;
  if (typeof (value as AbortSignal | null)?.addEventListener !== 'function') throw invalid('signal is not an AbortSignal');
}

/** idBytes returns the bytes of an id. name is the argument's name for errors. */
export function idBytes(id: ID, name = 'an id'): Buffer {
  const bytes = bytesOf(id, name);
  if (bytes.length === 0) throw invalid(`${name} has 0 bytes: want 1 to ${maxIDBytes}`);
  return bytes;
}

/** checkIDType refuses values that are neither text nor bytes. */
export function checkIDType(id: unknown, name: string): asserts id is ID {
  if (typeof id === 'string' || ArrayBuffer.isView(id)) return;
  throw invalid(`${name} is ${id === null ? 'null' : typeof id}: want a string or a Uint8Array`);
}

/** bytesOf is idBytes for a part of an id, which may be empty. */
export function bytesOf(id: ID, name: string): Buffer {
  checkIDType(id, name);
  let bytes: Buffer;
  if (typeof id === 'string') {
    if (!wellFormed(id)) throw invalid(`${name} has half a surrogate pair; give bytes`);
    bytes = Buffer.from(id, 'utf8');
  } else {
    bytes = Buffer.from(id.buffer, id.byteOffset, id.byteLength);
  }
  if (bytes.length > maxIDBytes) throw invalid(`${name} has ${bytes.length} bytes: want at most ${maxIDBytes}`);
  return bytes;
}

/** wellFormed is String.isWellFormed, which Node 18 lacks: such an id would become another. */
function wellFormed(text: string): boolean {
  return !/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(text);
}
