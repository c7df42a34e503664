package core

// A RetryBudget limits the retries of a client to a share of its calls, so that retries
// do not multiply the load of overloaded servers. Each call deposits the share. Time
// deposits a constant rate, for clients with few calls. A retry withdraws one attempt
// when it is queued, so that retries that wait for a slot or a pause count.
//
// After Finagle's RetryBudget (twitter/finagle, com.twitter.finagle.service).
type RetryBudget struct {
	held    int64 // in billionths of an attempt, like the next three fields
	limit   int64
	perCall int64
	perNano int64
	at      int64 // time of the last deposit for elapsed time
}

// attempt is one attempt in the unit of RetryBudget.
const attempt = 1e9

// NewRetryBudget returns a full budget. ratio is the number of retries per call, from 0
// to 100. perSecond is the number of retries that time deposits per second. burst, at
// least 1, is the maximum that the budget holds.
func NewRetryBudget(now int64, ratio float64, perSecond, burst int32) RetryBudget {
	limit := int64(max(burst, 1)) * attempt
	return RetryBudget{held: limit, limit: limit, perCall: int64(min(ratio, 100) * attempt), perNano: int64(perSecond), at: now}
}

// Deposit adds the share of a call.
func (b *RetryBudget) Deposit() { b.held = min(b.held+b.perCall, b.limit) }

// Withdraw takes out an attempt and reports whether the budget held one.
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
