package simulate

import (
	"context"

	"docstore/internal/vfs"
	"docstore/queue"
	"docstore/queue/bucket"
	"docstore/queue/publish"
)

// Warm makes what production code keeps for the life of a process, such as encoders with
// channels, and what the simulator does. It is called outside of bubbles: what a bubble makes
// cannot be used in the next.
func Warm() error {
	if _, err := newCredentials(); err != nil {
		return err
	}
	if _, err := readAlerts(); err != nil {
		return err
	}
	ctx, mem := context.Background(), vfs.NewMem()
	if err := vfs.MakeDir(mem, "/bucket"); err != nil {
		return err
	}
	b, err := bucket.OpenDir(mem, "/bucket")
	if err != nil {
		return err
	}
	w, err := queue.OpenWriter(queueDir, &queue.WriterOptions{FS: mem})
	if err != nil {
		return err
	}
	if _, err := w.Append([]byte("id"), []byte("document")); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	p, err := publish.OpenPublisher(ctx, b, queueDir, &publish.Options{FS: mem})
	if err != nil {
		return err
	}
	if _, err := p.Publish(ctx); err != nil {
		return err
	}
	return p.Close()
}
