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
