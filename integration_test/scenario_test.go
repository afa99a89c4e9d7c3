package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/keytill/keytill/internal/hooktest"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/smtptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// A scenario is the world of one script: a database, Stripe, a mail server, a storefront's receiver of hooks, and a
// keytill among them, which may end and be started again.
type scenario struct {
	ctx   context.Context // ends with the script
	clock *clock
	url   string        // the database's
	db    *pgxpool.Pool // to look at it

	stripe   *stripefake.Server
	mail     *smtptest.Server
	hooks    *hooktest.Server
	receiver *receiver // stands before hooks

	keyset *inventory.Keyset
	log    *logBuffer
	life   *life // keytill as it runs now

	mu         sync.Mutex    // for-each runs commands in parallel
	numbered   map[int64]int // how many keys of a pool were named SKU-0001 …
	snapshots  map[string]json.RawMessage
	remembered map[string][]string
	holds      map[string]*stripefake.Hold
	carts      map[string]string // the merchant by a reservation's reference
}

type scenarioKey struct{}

// setUp makes a script's world, and has it end with the script.
func setUp(env *testscript.Env) error {
	t, ok := env.T().(testing.TB)
	if !ok {
		return fmt.Errorf("testscript was not started by testscript.Run")
	}
	// testscript would put $N in where for-each is to do so: it gets itself for a value.
	env.Setenv("N", "$N")

	ctx, cancel := context.WithCancel(context.Background())
	clock := &clock{}
	url := pgtest.NewURL(t)
	s := &scenario{
		ctx: ctx, clock: clock, url: url, db: pgtest.Pool(t, url), log: &logBuffer{},
		stripe:   stripefake.Start(stripefake.Config{Now: clock.now}),
		mail:     smtptest.Start(),
		hooks:    hooktest.Start(hooktest.NewSecret()),
		numbered: make(map[int64]int), snapshots: make(map[string]json.RawMessage),
		remembered: make(map[string][]string), holds: make(map[string]*stripefake.Hold), carts: make(map[string]string),
	}
	s.receiver = newReceiver(s.hooks, clock.now)
	env.Values[scenarioKey{}] = s
	env.Defer(func() {
		s.end(t)
		cancel()
	})
	var err error
	if s.keyset, err = inventory.NewKeyset(); err != nil {
		return err
	}
	s.life, err = s.start(ctx)
	return err
}

// end checks what must hold at every script's end, and stops everything.
func (s *scenario) end(t testing.TB) {
	if s.life != nil && !t.Failed() {
		if err := s.holdInvariants(s.ctx); err != nil {
			t.Errorf("at the script's end: %v", err)
		}
	}
	// What hangs in Stripe would keep keytill from stopping.
	s.stripe.Close()
	if s.life != nil {
		if err := s.life.stop(); err != nil {
			t.Errorf("stop keytill: %v", err)
		}
	}
	s.mail.Close()
	s.receiver.close()
	s.hooks.Close()
	if t.Failed() {
		t.Logf("the end of keytill's log:\n%s", s.log.tail())
	}
}

// logger is keytill's, kept for when the script fails.
func (s *scenario) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// A clock is real time and what the script has put it forward by.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) forward(d time.Duration) { c.ahead.Add(int64(d)) }

// logBuffer keeps the end of a log.
type logBuffer struct {
	mu   sync.Mutex
	text []byte
}

const logKept = 16 << 10

var _ io.Writer = (*logBuffer)(nil)

// Write takes a line.
func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, line...)
	if cut := len(b.text) - logKept; cut > logKept {
		b.text = bytes.Clone(b.text[cut:])
	}
	return len(line), nil
}

func (b *logBuffer) tail() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := b.text
	if cut := len(text) - logKept; cut > 0 {
		text = text[cut:]
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			text = text[i+1:]
		}
	}
	return string(text)
}
