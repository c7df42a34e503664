/** maxRequestBytes is the limit of a request of the server, 4 MiB, less the other fields. */
export const maxRequestBytes = 4 * 1024 * 1024 - 64 * 1024;

/** idFieldBytes are those of an id in a request, without the id: a tag and a length. */
const idFieldBytes = 3;

/**
 * batches splits the indexes of ids into requests of at most batchIDs ids and maxRequestBytes.
 * Empty ids are in none.
 */
export function* batches(ids: readonly Uint8Array[], batchIDs: number): Generator<number[], void, void> {
  let batch: number[] = [];
  let bytes = 0;
  for (const [i, id] of ids.entries()) {
    if (id.length === 0) continue;
    const more = id.length + idFieldBytes;
    if (batch.length === batchIDs || bytes + more > maxRequestBytes) {
      yield batch;
      [batch, bytes] = [[], 0];
    }
    batch.push(i);
    bytes += more;
  }
  if (batch.length > 0) yield batch;
}
