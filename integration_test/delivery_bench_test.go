package integration_test

import (
	"context"
	"fmt"
	"log/slog"
	netsmtp "net/smtp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/jobs"
	"github.com/keytill/keytill/internal/smtptest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

const (
	benchDeliveries = 10_000
	benchLines      = 8 // connections to the mail server, as many as keytill mails over at once
)

// BenchmarkDelivery mails 10,000 orders their keys, from the job queue to the row that says it is sent, and then sends
// the very same messages, rendered already, in a loop that does nothing but SMTP, over as many connections. The mail
// server answers at once in the one case, which leaves the loop next to nothing to do, and after 10 ms in the other,
// which is quick for one on a network.
func BenchmarkDelivery(b *testing.B) {
	for _, answers := range []time.Duration{0, 10 * time.Millisecond} {
		b.Run(fmt.Sprintf("server=%s", answers), func(b *testing.B) {
			db := benchDatabase(b)
			server := smtptest.Start()
			defer server.Close()
			server.Slow(answers)
			shop := shopWithMail(b, db, server.URL())

			delivered := timeToMail(b, server, shop.Run)
			bare := rateOf(b, server.Messages(), benchLines, server)

			b.ReportMetric(delivered, "deliveries/s")
			b.ReportMetric(bare, "bare/s")
			b.ReportMetric(delivered/bare, "x/bare")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// shopWithMail makes a shop whose orders are settled and not mailed yet.
func shopWithMail(b *testing.B, db *pgxpool.Pool, smtpURL string) *adapter.Shop {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	keyset, err := inventory.NewKeyset()
	if err != nil {
		b.Fatal(err)
	}
	inserter, err := jobs.NewInserter(db, time.Now, log)
	if err != nil {
		b.Fatal(err)
	}
	service, err := fulfillment.New(fulfillment.Config{DB: db, Stripe: readyMade{}, Jobs: inserter, Keyset: keyset, Logger: log})
	if err != nil {
		b.Fatal(err)
	}
	if err := service.ServeChannels(b.Context(), []fulfillment.Channel{fulfillment.ChannelEmail}); err != nil {
		b.Fatal(err)
	}
	pool := benchPool(b, db, service, "game", benchDeliveries)
	var next atomic.Int64
	var group sync.WaitGroup
	for range benchWorkers {
		group.Go(func() {
			for n := next.Add(1); n <= benchDeliveries; n = next.Add(1) {
				if err := settleOne(b.Context(), service, pool, n); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	gatherStatistics(b, db)
	stripe := stripefake.Start(stripefake.Config{})
	b.Cleanup(stripe.Close)
	shop, err := adapter.New(b.Context(), adapter.Config{Pool: db, Keyset: keyset, Logger: log, Reconcile: adapter.Reconcile{Every: -1},
		PublicURL: "https://keys.example.com", Mail: adapter.Mail{URL: smtpURL, From: "Shop <shop@example.com>"},
		Stripe: adapter.Stripe{APIKey: stripe.APIKey(), WebhookSecrets: stripe.Secrets(), URL: stripe.URL()}})
	if err != nil {
		b.Fatal(err)
	}
	return shop
}

// timeToMail runs keytill until every mail has come, and returns how many came a second.
func timeToMail(b *testing.B, server *smtptest.Server, run func(ctx context.Context) error) float64 {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	ended := make(chan error, 1)
	begin := time.Now()
	go func() { ended <- run(ctx) }()
	for server.Count() < benchDeliveries {
		select {
		case err := <-ended:
			b.Fatalf("keytill ended: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	rate := benchDeliveries / time.Since(begin).Seconds()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	return rate
}

// rateOf sends messages in a loop over so many connections.
func rateOf(b *testing.B, messages []smtptest.Message, lines int, server *smtptest.Server) float64 {
	b.Helper()
	var next atomic.Int64
	var group sync.WaitGroup
	begin := time.Now()
	for range lines {
		group.Go(func() {
			client, err := netsmtp.Dial(server.Addr())
			if err != nil {
				b.Error(err)
				return
			}
			defer client.Close()
			for n := next.Add(1) - 1; n < int64(len(messages)); n = next.Add(1) - 1 {
				if err := sendBare(client, messages[n]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	return float64(len(messages)) / time.Since(begin).Seconds()
}

func sendBare(client *netsmtp.Client, m smtptest.Message) error {
	if err := client.Mail(m.From); err != nil {
		return fmt.Errorf("MAIL: %w", err)
	}
	if err := client.Rcpt(m.To[0]); err != nil {
		return fmt.Errorf("RCPT: %w", err)
	}
	w, err := client.Data()
	if err != nil {
		return fmt.Errorf("DATA: %w", err)
	}
	if _, err := w.Write(m.Raw); err != nil {
		return err
	}
	return w.Close()
}
