package jobs

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// driver is River's own but for one thing: where it could not LISTEN, it says so.
//
// River takes an error that ends in "conn closed" for the sign that it is being stopped (producer.go and elector.go, v0.51).
// A connection that broke while a process started would leave it with queues that nobody works, and looking well.
type driver struct{ *riverpgxv5.Driver }

func newDriver(pool *pgxpool.Pool) driver { return driver{riverpgxv5.New(pool)} }

// GetListener is called by River.
func (d driver) GetListener(params *riverdriver.GetListenenerParams) riverdriver.Listener {
	return listener{d.Driver.GetListener(params)}
}

type listener struct{ riverdriver.Listener }

// Listen is called by River.
func (l listener) Listen(ctx context.Context, topic string) error {
	if err := l.Listener.Listen(ctx, topic); err != nil {
		return fmt.Errorf("LISTEN: %w, so nothing would be heard of %s", err, topic)
	}
	return nil
}
