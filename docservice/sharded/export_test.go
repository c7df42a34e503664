package sharded

// DisableHedging makes a client send each sub-batch to one server only.
func (c *Client) DisableHedging() { c.shared.hedger.budget.held.Store(-1 << 62) }
