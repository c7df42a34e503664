// Package guides runs the commands in README.md and the guides, and checks the flags of the others.
//
// The info string of each fenced block declares its kind:
//
//	```sh run               runs in order, in one shell per page, with the commands of this
//	                        repository in PATH unless the page installs them
//	```output               expected output of the preceding block, stdout and stderr; "..."
//	                        matches any text in a line, a line of "..." any lines
//	```sh needs: SYSTEMD    not run, for the stated reason; flags are checked
//	```sh measures          a benchmark, not run; flags are checked
//	```yaml config          a configuration that docserviced config must accept
//	```text, go, yaml ...   no commands
//
// An indented line may be a benchmark command.
//
// A page runs what a reader pastes, in an empty directory or a copy of the repository, as the page
// says, and nothing else; a loop must have a bound.
//
// Pages run in parallel. Therefore the tests replace ports by free ones, and reverse this in the
// output.
package guides
