/** Shared is the listener of a signal and the functions that it calls. */
interface Shared {
  readonly functions: Set<() => void>;
  readonly listener: () => void;
}

const all = new WeakMap<AbortSignal, Shared>();

/**
 * onAbort calls fn when the signal is aborted, and returns a function that ends this. All calls
 * with a signal share one listener: Node warns of a leak when a signal has more than ten. Each
 * fn is another function.
 */
export function onAbort(signal: AbortSignal | undefined, fn: () => void): () => void {
  if (signal === undefined) return () => {};
  let shared = all.get(signal);
  if (shared === undefined) {
    const functions = new Set<() => void>();
    shared = { functions, listener: () => functions.forEach((call) => call()) };
    all.set(signal, shared);
    signal.addEventListener('abort', shared.listener);
  }
  const { functions, listener } = shared;
  functions.add(fn);
  return () => {
    if (!functions.delete(fn) || functions.size > 0) return;
    signal.removeEventListener('abort', listener);
    all.delete(signal);
  };
}
