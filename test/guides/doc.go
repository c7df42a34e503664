// Package guides runs the commands in the guides of docs/ and checks the flags of the others.
//
// The info string of each fenced block declares its kind:
//
//	```sh run               runs in order, in one shell per page that starts in an empty
//	                        directory with the commands of this repository in PATH
//	```output               expected output of the preceding block, stdout and stderr; "..."
//	                        matches any text in a line, a line of "..." any lines
//	```sh needs: SYSTEMD    not run, for the stated reason; flags are checked
//	```sh measures          a benchmark, not run; flags are checked
//	```yaml config          a configuration that docserviced config must accept
//	```text, go, yaml ...   no commands
//
// An indented line may be a benchmark command. Setup commands that are not shown to readers
// are in a comment:
//
//	<!-- run
//	docstore-updater append --queue /srv/queue/jobs ...
//	-->
//
// Pages use the addresses and paths of a real machine and run in parallel. Therefore the
// tests replace ports by free ones, hosts 10.0.0.N by localhost, and /srv/, /etc/docstore
// and /var/lib/docstore by directories per page, and reverse this in the output.
package guides
