package fulfillment

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/keytill/keytill/internal/pg"
)

// FindingKind says what a person must look at, in the words of the schema's CHECK.
type FindingKind string

const (
	UnknownPrice       FindingKind = "unknown_price"       // a price that is not mapped; one a price, not one an order
	UnattributedRefund FindingKind = "unattributed_refund" // a refund that does not say which keys it is for
	AmountMismatch     FindingKind = "amount_mismatch"     // less captured than the order's total
	Inquiry            FindingKind = "inquiry"             // a bank asks before it disputes
	FraudWarning       FindingKind = "fraud_warning"       // an early fraud warning
	UnknownStatus      FindingKind = "unknown_status"      // Stripe says a word that keytill does not know
	UnknownAccount     FindingKind = "unknown_account"     // events of a Connect account that is no merchant's
	NoRecipient        FindingKind = "no_recipient"        // keys, and no e-mail address to send them to
	Shortage           FindingKind = "shortage"            // a paid unit failed, since its pool does not wait
	Undeliverable      FindingKind = "undeliverable"       // a delivery was given up
	Silence            FindingKind = "silence"             // payments are made, and no event comes
)

// A Finding is something a person must look at. It is opened once for its subject and closed when it no longer holds.
type Finding struct {
	ID       int64       `json:"id"`
	Kind     FindingKind `json:"kind"`
	Subject  string      `json:"subject"` // the price, order, dispute … it is about
	Order    string      `json:"order,omitempty"`
	Detail   string      `json:"detail"`
	OpenedAt time.Time   `json:"opened_at"`
}

const (
	// Index: findings_open, which makes the second opening of one finding nothing.
	openFinding = `
INSERT INTO keytill.findings (merchant_id, kind, subject, order_id, detail, opened_at)
VALUES ($1, $2, $3, nullif($4, ''), $5, $6)
ON CONFLICT (merchant_id, kind, subject) WHERE closed_at IS NULL DO UPDATE SET detail = excluded.detail
  WHERE keytill.findings.detail <> excluded.detail`

	// Closes the findings of an order that its last settle did not open again. Index: findings_order.
	closeFindings = `
UPDATE keytill.findings f SET closed_at = $5
 WHERE merchant_id = $1 AND order_id = $2 AND closed_at IS NULL
   AND kind NOT IN ('undeliverable')
   AND NOT EXISTS (SELECT 1 FROM unnest($3::text[], $4::text[]) AS still (kind, subject)
                    WHERE still.kind = f.kind AND still.subject = f.subject)`

	// Index: findings_open.
	closeFinding = `
UPDATE keytill.findings SET closed_at = $4 WHERE merchant_id = $1 AND kind = $2 AND subject = $3 AND closed_at IS NULL`

	readFindings = `
SELECT finding_id, kind, subject, coalesce(order_id, ''), detail, opened_at
  FROM keytill.findings
 WHERE merchant_id = $1 AND closed_at IS NULL
 ORDER BY opened_at, finding_id`
)

// FindingNotice is what finding.opened tells.
type FindingNotice struct {
	ID      int64       `json:"id"`
	Kind    FindingKind `json:"kind"`
	Subject string      `json:"subject"`
	Detail  string      `json:"detail"`
}

const (
	// Lock: the findings, those that another takes skipped. Index: findings_untold.
	takeUntold = `
UPDATE keytill.findings SET told = true
 WHERE merchant_id = $1 AND finding_id IN (
       SELECT finding_id FROM keytill.findings WHERE merchant_id = $1 AND NOT told ORDER BY finding_id FOR UPDATE SKIP LOCKED)
RETURNING finding_id, kind, subject, coalesce(order_id, ''), detail, closed_at IS NULL`

	// Index: findings_untold.
	untoldMerchants = `SELECT DISTINCT merchant_id FROM keytill.findings WHERE NOT told`
)

// tellFindings tells the storefront of findings that it has not heard of. Whoever opens one in a transaction that can
// insert jobs calls it there; the others are told within a minute, by TellFindings.
func (s *Service) tellFindings(ctx context.Context, tx pgx.Tx, merchant string) error {
	rows, err := tx.Query(ctx, takeUntold, merchant)
	if err != nil {
		return fmt.Errorf("take the new findings: %w", err)
	}
	var (
		told  FindingNotice
		order string
		open  bool
		found []notice
		of    []string
	)
	_, err = pgx.ForEachRow(rows, []any{&told.ID, &told.Kind, &told.Subject, &order, &told.Detail, &open}, func() error {
		if open {
			finding := told
			found, of = append(found, notice{kind: FindingOpened, after: s.now(), subject: Subject{Finding: &finding}}), append(of, order)
		}
		return nil
	})
	if err != nil || len(found) == 0 {
		return err
	}
	var channels channelNames
	if err := tx.QueryRow(ctx, readChannels, merchant).Scan(&channels); err != nil {
		return fmt.Errorf("read the channels: %w", err)
	}
	var rowsToTell deliveries
	for i, n := range found {
		for _, channel := range channels.storefront() {
			rowsToTell.add(of[i], channel, n, "")
		}
	}
	jobs, err := rowsToTell.insert(ctx, tx, merchant, s.now())
	if err != nil {
		return err
	}
	return insertJobs(ctx, s.jobs, tx, jobs)
}

// skipFindings marks what is untold as told.
func skipFindings(ctx context.Context, tx pgx.Tx, merchant string) error {
	if _, err := tx.Exec(ctx, takeUntold, merchant); err != nil {
		return fmt.Errorf("mark the findings: %w", err)
	}
	return nil
}

// TellFindings tells the storefronts of findings that nobody has told yet.
func (s *Service) TellFindings(ctx context.Context) error {
	rows, err := s.db.Query(ctx, untoldMerchants)
	if err != nil {
		return fmt.Errorf("look for new findings: %w", err)
	}
	merchants, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for new findings: %w", err)
	}
	for _, merchant := range merchants {
		if err := pg.InTx(ctx, s.db, func(tx pgx.Tx) error { return s.tellFindings(ctx, tx, merchant) }); err != nil {
			return err
		}
	}
	return nil
}

// Findings lists a merchant's open findings, oldest first.
func Findings(ctx context.Context, db pg.Querier, merchant string) ([]Finding, error) {
	rows, err := db.Query(ctx, readFindings, merchant)
	if err != nil {
		return nil, fmt.Errorf("read the findings: %w", err)
	}
	findings, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Finding])
	if err != nil {
		return nil, fmt.Errorf("read the findings: %w", err)
	}
	return findings, nil
}

// OpenFinding opens a finding that belongs to no order's settle. Opened twice, it is open once.
func OpenFinding(ctx context.Context, db pg.Querier, merchant string, q Question, at time.Time) error {
	if _, err := db.Exec(ctx, openFinding, merchant, q.Kind, q.Subject, "", q.Detail, at); err != nil {
		return fmt.Errorf("open finding %s: %w", q.Kind, err)
	}
	return nil
}

// CloseFinding closes the finding of a kind and subject, if it is open.
func CloseFinding(ctx context.Context, db pg.Querier, merchant string, kind FindingKind, subject string, at time.Time) error {
	if _, err := db.Exec(ctx, closeFinding, merchant, kind, subject, at); err != nil {
		return fmt.Errorf("close finding %s: %w", kind, err)
	}
	return nil
}

// queueQuestions opens an order's questions and closes those it no longer has.
func queueQuestions(batch *pgx.Batch, merchant, order string, questions Questions, at time.Time) {
	kinds, subjects := make([]string, len(questions)), make([]string, len(questions))
	for i, q := range questions {
		kinds[i], subjects[i] = string(q.Kind), q.Subject
		batch.Queue(openFinding, merchant, q.Kind, q.Subject, order, q.Detail, at)
	}
	batch.Queue(closeFindings, merchant, order, kinds, subjects, at)
}
