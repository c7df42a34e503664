// Package guides runs the commands of the guides in docs/, and checks those that cannot
// be run here.
//
// Every fenced block of a guide says in its first line what it is:
//
//	```sh run               it is run: all of a page one after another in one shell, in an
//	                        empty directory, with the commands of this project in the PATH
//	```output               what the block before it prints, both streams together; "..."
//	                        stands for anything within a line, a line of "..." for any lines
//	```sh needs: SYSTEMD    it is not run, and why: what it would need. Its flags are checked
//	```sh measures          it makes figures, which takes long. Its flags are checked
//	```yaml config          settings, which docserviced config has to take
//	```text, go, yaml ...   no commands
//
// An indented line may be a command that measures, too, and nothing else that is run. What
// a page needs before its first command, and readers do not, is in a comment:
//
//	<!-- run
//	docstore-updater append --queue /srv/queue/jobs ...
//	-->
//
// So that pages do not get into each other's way, and can name the addresses and paths of
// a real machine, ports in them are exchanged for free ones, hosts 10.0.0.N for this one,
// and /srv/, /etc/docstore and /var/lib/docstore for directories below the page's own; and
// back in what is printed.
package guides
