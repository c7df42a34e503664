package cli

// Setting is the value of a flag and its source.
type Setting struct {
	Name, Value, Source string
}
