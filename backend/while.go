package backend

import (
	"context"

	"github.com/sourcegraph/conc"
)

// While runs work on another goroutine and returns its error. Meanwhile it calls m.Poll, which replaces ranks that
// fail, because work may read published weights or copies for a checkpoint from them. If Poll fails, While cancels
// work's context, waits for work, and returns Poll's error unless work succeeds. work must not call m.
func While(ctx context.Context, m Models, work func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	var err error
	var working conc.WaitGroup
	working.Go(func() {
		defer close(ended)
		err = work(ctx)
	})
	defer working.Wait()
	for {
		select {
		case <-ended:
			return err
		case <-m.Ready():
			failed := m.Poll(ctx)
			if failed == nil {
				continue
			}
			cancel()
			working.Wait()
			if err == nil {
				return nil
			}
			return failed
		}
	}
}
