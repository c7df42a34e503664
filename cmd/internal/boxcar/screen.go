package boxcar

import (
	"context"
	"errors"
	"time"

	"docstore/cmd/internal/cli"
)

// Control sequences of terminals.
const (
	hideCursor = "\x1b[?25l\x1b[2J"
	showCursor = "\x1b[?25h"
	goHome     = "\x1b[H"
	clearRest  = "\x1b[K"
	clearBelow = "\x1b[J"
)

// screen draws lines on a terminal.
type screen struct {
	// size returns the size of the terminal; ok is false if there is none.
	size func() (width, height int, ok bool)
}

// run draws the lines of frame over the last ones, once per interval until ctx ends, and
// restores the cursor.
func (s *screen) run(ctx context.Context, env *cli.Env, interval time.Duration, frame func() []string) (err error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	out := cli.NewOutput(env.Stdout)
	out.Printf(hideCursor)
	defer func() {
		out.Printf(showCursor)
		err = errors.Join(err, out.Flush())
	}()
	for {
		lines := frame()
		if ctx.Err() != nil {
			return nil
		}
		width, height, _ := s.size()
		out.Printf(goHome)
		lines = fit(lines, width, height)
		for i, line := range lines {
			out.Printf("%s%s", line, clearRest)
			if i < len(lines)-1 { // a newline in the last line would scroll
				out.Printf("\r\n")
			}
		}
		out.Printf(clearBelow)
		if err := out.Flush(); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}
