package core

// A RetryBudget bounds the further attempts of a client to a share of its calls, so
// that servers in trouble do not get a multiple of their load. Each call pays in
// its share, time pays in a little, so that a client with few calls may try again
// too, and a further attempt takes one out when it is queued: those that wait for
// a slot or for a pause to end are counted before they are sent.
//
// After Finagle's RetryBudget (twitter/finagle, com.twitter.finagle.service).
type RetryBudget struct {
	held    int64 // in billionths of an attempt
	limit   int64
	perCall int64
	perNano int64
	at      int64 // when time has paid in last
}

// attempt is one, as a budget counts.
const attempt = 1e9

// NewRetryBudget makes a full budget: ratio is the share of calls that may be
// attempted again, 0 to 100, perSecond what time pays in, and burst, at least 1,
// how many attempts it holds at most.
func NewRetryBudget(now int64, ratio float64, perSecond, burst int32) RetryBudget {
	limit := int64(max(burst, 1)) * attempt
	return RetryBudget{held: limit, limit: limit, perCall: int64(min(ratio, 100) * attempt), perNano: int64(perSecond), at: now}
}

// Deposit pays in for a call.
func (b *RetryBudget) Deposit() { b.held = min(b.held+b.perCall, b.limit) }

// Withdraw takes an attempt out, if there is one.
func (b *RetryBudget) Withdraw(now int64) bool {
	if elapsed := now - b.at; b.perNano > 0 && elapsed < b.limit/b.perNano {
		b.held = min(b.held+elapsed*b.perNano, b.limit)
	} else if b.perNano > 0 {
		b.held = b.limit
	}
	b.at = now
	if b.held < attempt {
		return false
	}
	b.held -= attempt
	return true
}
