/** Candidate is what choose needs to know of a server. */
export interface Candidate {
  readonly inFlight: number;
  /** health as the server reports it; undefined: unknown. */
  readonly serving: boolean | undefined;
  /** pausedUntil is the time in milliseconds until which the server is used last. */
  readonly pausedUntil: number;
}

/**
 * maxInFlight is the maximum number of calls in flight to one server. A daemon permits 128
 * streams of a connection, other servers at least 100 (RFC 9113), one of them for the health.
 * More calls would wait inside the gRPC library while the time of their attempt passes.
 */
export const maxInFlight = 99;

/** rank orders servers: 0 healthy, 1 of unknown health, 2 paused or not serving. */
function rank(c: Candidate, now: number): number {
  if (c.serving === false || now < c.pausedUntil) return 2;
  return c.serving === true ? 0 : 1;
}

/**
 * choose returns the better of two random servers of the best rank: that with fewer calls in
 * flight. It prefers servers that are not in tried. It returns undefined if all servers of the
 * best rank have maxInFlight calls. There must be a server. random returns a number from 0 to 1,
 * 1 excluded.
 */
export function choose<C extends Candidate>(servers: readonly C[], tried: ReadonlySet<C>, now: number, random: () => number): C | undefined {
  const untried = servers.filter((s) => !tried.has(s));
  const candidates = untried.length > 0 ? untried : servers;
  const best = Math.min(...candidates.map((c) => rank(c, now)));
  const among = candidates.filter((c) => rank(c, now) === best && c.inFlight < maxInFlight);
  if (among.length === 0) return undefined;
  const first = Math.floor(random() * among.length);
  const second = (first + 1 + Math.floor(random() * (among.length - 1))) % among.length;
  const [a, b] = [among[first]!, among[second]!];
  return b.inFlight < a.inFlight ? b : a;
}

/**
 * RetryBudget limits retries to a fifth of the calls and ten a second, so that retries do not
 * multiply the load of servers that fail.
 */
export class RetryBudget {
  private tokens: number;
  private at: number;

  constructor(
    now: number,
    private readonly ratio = 0.2,
    private readonly perSecond = 10,
    private readonly most = 64,
  ) {
    this.tokens = most;
    this.at = now;
  }

  /** call counts a call. */
  call(): void {
    this.tokens = Math.min(this.most, this.tokens + this.ratio);
  }

  /** take reports whether a call may be tried again, and counts the retry. */
  take(now: number): boolean {
    this.tokens = Math.min(this.most, this.tokens + (Math.max(0, now - this.at) / 1000) * this.perSecond);
    this.at = now;
    if (this.tokens < 1) return false;
    this.tokens--;
    return true;
  }
}

/** pause returns how long a server is used last after n failures in a row, in milliseconds. */
export function pause(n: number, random: () => number): number {
  return Math.min(5_000, 100 * 2 ** Math.min(n - 1, 10)) * (0.75 + random() / 2);
}
