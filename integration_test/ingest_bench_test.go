package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// BenchmarkIngest posts signed events, each a new one about a payment of its own, over 128 connections, and waits for each
// answer: the event and its job are durable then. Beside it, turn by turn:
//
//	few       the same over 32 connections
//	bare      one row inserted and committed alone, by 32 workers; more of them commit less
//	flooded   the same posts, while as many others post events whose signature is wrong, as fast as they get answers
//
// Server and senders share the machine. At the end, events come at half the rate that was seen, each at its appointed time
// whether or not the one before was answered, and the slowest hundredth is reported; beside it that of bare rows that come
// at half their rate, which is what the disk makes of it.
func BenchmarkIngest(b *testing.B) {
	ctx := b.Context()
	db := benchDatabase(b)
	makeTextbook(b, db, 1)
	door := openDoor(b, db)
	good := func(n int64) error { return door.post(n, door.secret, http.StatusOK) }

	bare := func(n int64) error { return bareOne(ctx, db, n) }

	rates := race(b, db, []contender{
		{"ingest", manySenders, good},
		{"few", benchWorkers, good},
		{"bare", benchWorkers, bare},
	})
	calm, flooded, refused := door.flood(b, good)
	late := appointed(b, rates["ingest"]/2, 4*time.Second, good)
	bareLate := appointed(b, rates["bare"]/2, 4*time.Second, bare)

	b.ReportMetric(rates["ingest"], "events/s")
	b.ReportMetric(rates["bare"], "bare/s")
	b.ReportMetric(rates["ingest"]/rates["bare"], "x/bare")
	b.ReportMetric(rates["few"]/rates["bare"], "few-x/bare")
	b.ReportMetric(calm/flooded, "x/flooded")
	b.ReportMetric(refused, "refused/s")
	b.ReportMetric(float64(percentile(late, 50))/1e6, "p50-ms")
	b.ReportMetric(float64(percentile(late, 99))/1e6, "p99-ms")
	b.ReportMetric(float64(percentile(bareLate, 99))/1e6, "bare-p99-ms")
	b.ReportMetric(0, "ns/op")
}

// Stripe sends what it has side by side.
const manySenders = 128

// A door is a shop's webhook, and those who knock at it.
type door struct {
	addr, secret string
	event        []byte       // with the placeholders benchID
	free         chan *sender // connections that nobody uses
}

const benchID = "0123456789benchmark"

func openDoor(b *testing.B, db *pgxpool.Pool) *door {
	b.Helper()
	stripe := stripefake.Start(stripefake.Config{})
	b.Cleanup(stripe.Close)
	keyset, err := inventory.NewKeyset()
	if err != nil {
		b.Fatal(err)
	}
	shop, err := adapter.New(b.Context(), adapter.Config{Pool: db, Keyset: keyset, Logger: slog.New(slog.NewJSONHandler(io.Discard, nil)),
		Reconcile: adapter.Reconcile{Every: -1},
		Stripe:    adapter.Stripe{APIKey: stripe.APIKey(), WebhookSecrets: stripe.Secrets(), URL: stripe.URL()}})
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: shop.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })

	items, err := stripefake.ParseItems("price_game*1")
	if err != nil {
		b.Fatal(err)
	}
	if err := stripe.Session("cs_"+benchID, items, nil); err != nil {
		b.Fatal(err)
	}
	event, err := stripe.Event("checkout.session.completed", "cs_"+benchID, stripefake.EventOptions{ID: "evt_" + benchID})
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("an event of %d bytes", len(event.Payload))
	return &door{addr: listener.Addr().String(), secret: stripe.Secrets()[0], event: event.Payload, free: make(chan *sender, 4*manySenders)}
}

// post posts event n and wants an answer.
func (d *door) post(n int64, secret string, status int) error {
	var s *sender
	select {
	case s = <-d.free:
	default:
		conn, err := net.Dial("tcp", d.addr)
		if err != nil {
			return err
		}
		s = &sender{conn: conn, reader: bufio.NewReaderSize(conn, 1024)}
	}
	id := fmt.Appendf(nil, "%0*d", len(benchID), n)
	got, err := s.post(bytes.ReplaceAll(d.event, []byte(benchID), id), secret)
	if err != nil {
		_ = s.conn.Close()
		return err
	}
	d.free <- s
	if got != status {
		return fmt.Errorf("the answer is %d, want %d", got, status)
	}
	return nil
}

// A sender is a connection that is kept, with no more than it takes to speak HTTP on it: a whole client would take from
// the server what is to be measured.
type sender struct {
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
}

func (s *sender) post(body []byte, secret string) (status int, err error) {
	at := time.Now().Unix()
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "%d.", at)
	mac.Write(body)
	s.request = fmt.Appendf(s.request[:0], "POST %s HTTP/1.1\r\nHost: shop\r\nUser-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\nAccept: */*; q=0.5, application/xml\r\n"+
		"Content-Type: application/json; charset=utf-8\r\nStripe-Signature: t=%d,v1=%s\r\nContent-Length: %d\r\n\r\n", webhookPath, at, hex.EncodeToString(mac.Sum(nil)), len(body))
	s.request = append(s.request, body...)
	if _, err := s.conn.Write(s.request); err != nil {
		return 0, err
	}
	return s.answer()
}

// answer reads an answer with a Content-Length, as those of the webhook are.
func (s *sender) answer() (status int, err error) {
	length := -1
	for first := true; ; first = false {
		line, err := s.reader.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first && len(line) >= 12:
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, err
			}
		case bytes.HasPrefix(line, []byte("Content-Length: ")):
			if length, err = strconv.Atoi(string(line[16:])); err != nil {
				return 0, err
			}
		case len(line) == 0 && length < 0:
			return 0, errors.New("the answer has no length")
		case len(line) == 0:
			_, err = s.reader.Discard(length)
			return status, err
		}
	}
}

// flood lets good events come with and without bad ones beside them, in turn, and returns the median rates of the good and
// how many bad ones were refused a second.
func (d *door) flood(b *testing.B, good func(n int64) error) (calm, flooded, refused float64) {
	b.Helper()
	var (
		next, bad  atomic.Int64
		with, free []float64
		underFlood time.Duration
	)
	next.Store(1 << 40)
	for range benchRounds {
		free = append(free, runFor(b, manySenders, benchSlice, &next, good))

		ctx, end := context.WithCancel(b.Context())
		var senders sync.WaitGroup
		for range manySenders {
			senders.Go(func() {
				for ctx.Err() == nil {
					if err := d.post(bad.Add(1), "whsec_wrong", http.StatusBadRequest); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		begin := time.Now()
		with = append(with, runFor(b, manySenders, benchSlice, &next, good))
		underFlood += time.Since(begin)
		end()
		senders.Wait()
	}
	slices.Sort(free)
	slices.Sort(with)
	b.Logf("calm       %8.0f a second (from %.0f to %.0f)", free[len(free)/2], free[0], free[len(free)-1])
	b.Logf("flooded    %8.0f a second (from %.0f to %.0f)", with[len(with)/2], with[0], with[len(with)-1])
	return free[len(free)/2], with[len(with)/2], float64(bad.Load()) / underFlood.Seconds()
}

// appointed does one thing after another at a steady rate and returns how long after its appointed time each was done, sorted.
func appointed(b *testing.B, rate float64, lasts time.Duration, one func(n int64) error) []time.Duration {
	b.Helper()
	late := make([]time.Duration, int(rate*lasts.Seconds()))
	var next atomic.Int64
	var group sync.WaitGroup
	begin := time.Now()
	for range manySenders {
		group.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(late)); i = next.Add(1) - 1 {
				at := begin.Add(time.Duration(float64(i) / rate * float64(time.Second)))
				time.Sleep(time.Until(at))
				if err := one(1<<41 + i); err != nil {
					b.Error(err)
					return
				}
				late[i] = time.Since(at)
			}
		})
	}
	group.Wait()
	slices.Sort(late)
	return late
}

func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[min(len(sorted)-1, len(sorted)*p/100)]
}
