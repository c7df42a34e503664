//go:build !invariants

package invariants

// Enabled tells whether this build checks invariants.
const Enabled = false
