package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter"
)

// A life is one keytill from its start to its end: what a process of it would be.
type life struct {
	shop   *adapter.Shop
	url    string    // of its HTTP server
	since  time.Time // by the scenario's clock
	pool   *pgxpool.Pool
	server *http.Server

	cutter cutter // of its connections to the outside
	wires  []*wire

	cancel context.CancelFunc
	ended  chan struct{} // closed when Run has returned
	err    error         // what Run returned
}

// dbConns is what one keytill takes of the test server's 300 connections.
const dbConns = 16

// fakePerSecond is more than keytill ever asks of the fake, which has no limit.
const fakePerSecond = 10_000

const mailFrom = "Shop <shop@example.com>"

// start starts keytill on the scenario's database.
func (s *scenario) start(ctx context.Context) (*life, error) {
	l := newLife(s.clock.now())
	config, err := s.config(ctx, l)
	if err == nil {
		err = l.launch(ctx, config)
	}
	if err != nil {
		l.cut()
		return nil, err
	}
	return l, s.awaitChannels(ctx, l)
}

func newLife(since time.Time) *life { return &life{since: since, ended: make(chan struct{})} }

// launch makes keytill and runs it.
func (l *life) launch(ctx context.Context, config adapter.Config) (err error) {
	if l.shop, err = adapter.New(ctx, config); err != nil {
		return fmt.Errorf("start keytill: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	l.url = "http://" + listener.Addr().String()
	l.server = &http.Server{Handler: l.shop.Handler(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = l.server.Serve(listener) }() // ends with the server

	// Not the caller's context: its end must not end keytill before what must hold was checked.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.cancel = cancel
	go func() {
		defer close(l.ended)
		l.err = l.shop.Run(running)
	}()
	return nil
}

// connect opens keytill's connections to the database, by a way that a kill can cut.
func (l *life) connect(ctx context.Context, url string, conns int32, tracer pgx.QueryTracer) error {
	poolConfig, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	poolConfig.MaxConns = conns
	poolConfig.ConnConfig.DialFunc = l.cutter.dial
	poolConfig.ConnConfig.Tracer = tracer
	l.pool, err = pgxpool.NewWithConfig(ctx, poolConfig)
	return err
}

// config has keytill reach everything by ways that a kill can cut.
func (s *scenario) config(ctx context.Context, l *life) (adapter.Config, error) {
	if err := l.connect(ctx, s.url, dbConns, nil); err != nil {
		return adapter.Config{}, err
	}
	var addrs [3]string
	for i, target := range []string{strings.TrimPrefix(s.stripe.URL(), "http://"), s.mail.Addr(), s.receiver.addr()} {
		w, err := newWire(target, &l.cutter)
		if err != nil {
			return adapter.Config{}, err
		}
		l.wires, addrs[i] = append(l.wires, w), w.addr()
	}
	return adapter.Config{
		Pool:   l.pool,
		Stripe: adapter.Stripe{APIKey: s.stripe.APIKey(), WebhookSecrets: s.stripe.Secrets(), URL: "http://" + addrs[0], PerSecond: fakePerSecond},
		Keyset: s.keyset,
		Mail:   adapter.Mail{URL: "smtp://" + addrs[1], From: mailFrom},
		Hook:   adapter.Hook{URL: "http://" + addrs[2] + hookPath, Secrets: []string{s.hooks.Secret()}},
		Now:    s.clock.now, Logger: s.logger(),

		Reconcile: adapter.Reconcile{Every: -1}, // scripts say when
	}, nil
}

// awaitChannels waits until keytill has noted the channels it delivers by: an order that is settled before has nobody to
// tell.
func (s *scenario) awaitChannels(ctx context.Context, l *life) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		var channels int
		err := s.db.QueryRow(ctx, `SELECT coalesce(min(cardinality(channels)), 0) FROM keytill.merchants`).Scan(&channels)
		if err != nil || channels > 0 {
			return err
		}
		if ended, err := l.hasEnded(); ended {
			return fmt.Errorf("keytill ended right after its start: %v", err)
		}
		if time.Now().After(deadline) {
			return errors.New("keytill has not noted its delivery channels within 10 s of its start")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (l *life) hasEnded() (bool, error) {
	select {
	case <-l.ended:
		return true, l.err
	default:
		return false, nil
	}
}

// endTimeout is more than keytill may take to stop.
const endTimeout = 20 * time.Second

// stop ends it as a deploy does: no new requests, jobs end in peace.
func (l *life) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	err := l.server.Shutdown(ctx)
	l.cancel()
	return errors.Join(err, l.bury())
}

// kill ends it as the kernel does: first nothing more gets out, so that it cannot note anything about its end. What is
// left of it only finds that out, for up to ten seconds, and nobody waits for that.
func (l *life) kill() {
	l.cut()
	_ = l.server.Close()
	l.cancel()
	go func() { _ = l.bury() }()
}

// cut ends every connection it has to the outside, and its ways there.
func (l *life) cut() {
	l.cutter.end()
	for _, w := range l.wires {
		w.close()
	}
}

// bury waits until nothing of it runs any more.
func (l *life) bury() error {
	select {
	case <-l.ended:
	case <-time.After(endTimeout):
		return fmt.Errorf("it has not stopped within %s", endTimeout)
	}
	closed := make(chan struct{})
	go func() {
		l.pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(endTimeout):
		return errors.New("database connections were not given back")
	}
	l.cut()
	if l.err != nil && !errors.Is(l.err, context.Canceled) { // it may be told to stop while it still starts
		return l.err
	}
	return nil
}
