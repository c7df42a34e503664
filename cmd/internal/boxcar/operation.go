package boxcar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"docstore/boxcarrpc"
	"docstore/cmd/internal/cli"
	"docstore/internal/ctxtime"
)

// operation holds the flags of a command that inspects or drains servers.
type operation struct{ serverFlags }

// addFlags adds the flags and their check.
func (o *operation) addFlags(command *cobra.Command, timeout time.Duration, about string) {
	o.serverFlags.addFlags(command.Flags(), timeout, about)
	command.PreRunE = func(*cobra.Command, []string) error { return o.check() }
}

// refusedPause is the pause after a server has refused an operation because of others in
// progress: those of commands that have just ended may count.
const refusedPause = 50 * time.Millisecond

// ask opens the stream of an operation on one server and returns the board with which it
// answers.
func (o *operation) ask(ctx context.Context, env *cli.Env, server, method string) (b boxcarrpc.Board, err error) {
	answer, err := o.exchange(ctx, env, server, method, nil)
	if err != nil {
		return b, o.explain([]string{server}, err)
	}
	if err := json.Unmarshal(answer, &b); err != nil {
		return b, fmt.Errorf("the board of %s: %w; is it of another version?", server, err)
	}
	return b, nil
}

// exchange opens a built-in stream of one server, sends a request unless it is nil, and returns
// the answer. It repeats an operation that the server refuses because of others in progress.
func (o *operation) exchange(ctx context.Context, env *cli.Env, server, method string, request []byte) (answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	err = whileRefused(ctx, func() (err error) {
		answer, err = o.exchangeOnce(ctx, env, server, method, request)
		return err
	})
	return answer, err
}

// whileRefused calls ask until the server does not refuse it, or ctx ends.
func whileRefused(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if boxcarrpc.CodeOf(err) != boxcarrpc.CodeResourceExhausted || !ctxtime.Sleep(ctx, refusedPause) {
			return err
		}
	}
}

func (o *operation) exchangeOnce(ctx context.Context, env *cli.Env, server, method string, request []byte) (answer []byte, err error) {
	pool, err := o.newPool([]string{server}, &boxcarrpc.PoolOptions{Size: 1, Logger: env.Log})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	if err := o.await(ctx, pool, hasConnection); err != nil {
		return nil, err
	}
	stream, err := pool.Stream(ctx, method, nil)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if request != nil {
		if err := stream.Send(request); err != nil {
			return nil, err
		}
	}
	return stream.Receive(nil)
}
