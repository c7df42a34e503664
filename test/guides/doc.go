// Package guides runs the commands of the guides in docs/.
//
// A fenced block whose first line is ```sh run is run, all blocks of a page one after
// another in one shell, in an empty directory, with the commands of this project in the
// PATH. A block ```output behind it is what it prints, both streams together; "..." in it
// stands for anything within a line, and a line of "..." for any lines.
//
// So that pages do not get into each other's way, and can name the default addresses,
// the ports in them are exchanged for free ones, and back in what is printed.
package guides
