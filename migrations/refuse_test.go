package migrations_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keytill/keytill/internal/pgtest"
)

// world is a row of each table, all of them as they may be.
const world = `
INSERT INTO keytill.pools (merchant_id, sku, name, created_at) VALUES ('default', 'game', 'Game', now());
INSERT INTO keytill.keys (merchant_id, key_id, pool_id, batch_id, position, ciphertext, fingerprint)
     SELECT 'default', n, 1, 1, n, '\x00', decode(lpad(n::text, 4, '0'), 'hex') FROM generate_series(1, 4) AS n;
UPDATE keytill.keys SET state = 'allocated', order_id = 'cs_1', line_id = 'li_1', unit = 1 WHERE key_id = 1;
INSERT INTO keytill.orders (merchant_id, order_id, payment_intent, payment, currency, amount_total, amount_captured, amount_refunded,
            placed_at, ticket, settled_at) VALUES ('default', 'cs_1', 'pi_1', 'paid', 'eur', 1, 1, 0, now(), 1, now());
INSERT INTO keytill.lines (merchant_id, order_id, line_id, ordinal, price, product, description, quantity, amount, pool_id)
     VALUES ('default', 'cs_1', 'li_1', 1, 'price_1', 'prod_1', 'Game', 1, 1, 1);
INSERT INTO keytill.fulfilments (merchant_id, order_id, line_id, unit, pool_id, state, key_id, changed_at)
     VALUES ('default', 'cs_1', 'li_1', 1, 1, 'fulfilled', 1, now());
INSERT INTO keytill.events (merchant_id, event_id, type, object_id, payment, livemode, received_at, next_try_at)
     VALUES ('default', 'evt_1', 'x', 'pi_1', 'pi_1', false, now(), now());
INSERT INTO keytill.findings (merchant_id, kind, subject, detail, opened_at) VALUES ('default', 'inquiry', 'dp_1', '', now());
INSERT INTO keytill.deliveries (merchant_id, order_id, channel, type, send_after, created_at)
     VALUES ('default', 'cs_1', 'email', 'keys.ready', now(), now());
INSERT INTO keytill.movements (merchant_id, pool_id, key_id, from_state, to_state, reason, actor, at)
     VALUES ('default', 1, 1, 'available', 'allocated', 'paid', 'settle', now());
INSERT INTO keytill.price_map (merchant_id, item, pool_id) VALUES ('default', 'price_1', 1);
INSERT INTO keytill.batches (merchant_id, pool_id, file_name, file_hash, actor, keys, created_at)
     VALUES ('default', 1, 'a.txt', '\x00', 'test', 4, now());
INSERT INTO keytill.reservations (merchant_id, ref, pool_id, keys, ahead, expires_at, created_at)
     VALUES ('default', 'cart', 1, 1, 0, now(), now());
INSERT INTO keytill.reservation_attempts (merchant_id, pool_id, at, result) VALUES ('default', 1, now(), 'ok');
INSERT INTO keytill.sweep_spans (merchant_id, kind, created_from, created_to, moved_at)
     VALUES ('default', 'events', now(), now() + interval '1 hour', now());
INSERT INTO keytill.api_requests (merchant_id, actor, request_key, request_hash, begun_at, expires_at)
     VALUES ('default', 'x', 'k', '\x00', now(), now())`

// refused are statements that make something that cannot be, by the constraint or unique index that refuses them. What
// the code never does is not here for the code: it is for the one that will be wrong one day.
var refused = map[string]string{
	"merchants_merchant_id_check": `INSERT INTO keytill.merchants (merchant_id, created_at) VALUES ('A B', now())`,

	"pools_sku_check":            `UPDATE keytill.pools SET sku = ''`,
	"pools_shortage_check":       `UPDATE keytill.pools SET shortage = 'sometimes'`,
	"pools_pending_supply_check": `UPDATE keytill.pools SET pending_supply = -1`,
	"pools_low_keys_check":       `UPDATE keytill.pools SET low_keys = -1`,
	"pools_low_percent_check":    `UPDATE keytill.pools SET low_percent = 100`,
	"pools_max_reserved_check":   `UPDATE keytill.pools SET max_reserved = -1`,
	"pools_merchant_id_sku_key":  `INSERT INTO keytill.pools (merchant_id, sku, name, created_at) VALUES ('default', 'game', 'Other', now())`,
	"price_map_item_check":       `UPDATE keytill.price_map SET item = ''`,
	"price_map_per_unit_check":   `UPDATE keytill.price_map SET per_unit = 0`,
	"batches_state_check":        `UPDATE keytill.batches SET state = 'lost'`,

	"keys_state_check": `UPDATE keytill.keys SET state = 'sold' WHERE key_id = 2`,
	"keys_check":       `UPDATE keytill.keys SET state = 'suspended' WHERE key_id = 2`,
	"keys_check1":      `UPDATE keytill.keys SET state = 'available' WHERE key_id = 1`,
	"keys_check2":      `UPDATE keytill.keys SET state = 'reserved', reserved_for = 'cart' WHERE key_id = 2`,
	"keys_fingerprint": `UPDATE keytill.keys SET fingerprint = '\x0001' WHERE key_id = 2`,
	"keys_live_unit":   `UPDATE keytill.keys SET state = 'suspended', order_id = 'cs_1', line_id = 'li_1', unit = 1 WHERE key_id = 2`,

	"movements_check":  `UPDATE keytill.movements SET from_state = NULL`,
	"movements_check1": `UPDATE keytill.movements SET keys = 2`,
	"movements_check2": `UPDATE keytill.movements SET from_state = 'allocated'`,

	"events_state_check": `UPDATE keytill.events SET state = 'lost'`,

	"orders_order_id_check": `INSERT INTO keytill.orders (merchant_id, order_id, payment, currency, amount_total, amount_captured, amount_refunded, placed_at, ticket, settled_at)
		SELECT merchant_id, '', payment, currency, 1, 1, 0, now(), 2, now() FROM keytill.orders`,
	"orders_payment_check": `UPDATE keytill.orders SET payment = 'maybe'`,
	"orders_payment_intent": `INSERT INTO keytill.orders (merchant_id, order_id, payment_intent, payment, currency, amount_total, amount_captured, amount_refunded, placed_at, ticket, settled_at)
		SELECT merchant_id, 'cs_2', payment_intent, payment, currency, 1, 1, 0, now(), 2, now() FROM keytill.orders`,
	"lines_quantity_check": `UPDATE keytill.lines SET quantity = -1`,
	"lines_check":          `UPDATE keytill.lines SET keyless = true`,

	"fulfilments_unit_check":       `UPDATE keytill.fulfilments SET unit = 0`,
	"fulfilments_state_check":      `UPDATE keytill.fulfilments SET state = 'sold'`,
	"fulfilments_revoked_by_check": `UPDATE keytill.fulfilments SET state = 'revoked', revoked_by = 'nobody'`,
	"fulfilments_check":            `UPDATE keytill.fulfilments SET key_id = NULL`,
	"fulfilments_check1":           `UPDATE keytill.fulfilments SET state = 'waiting'`,
	"fulfilments_check2":           `UPDATE keytill.fulfilments SET state = 'revoked'`,

	"deliveries_channel_check": `UPDATE keytill.deliveries SET channel = 'pigeon'`,
	"deliveries_state_check":   `UPDATE keytill.deliveries SET state = 'lost'`,
	"findings_kind_check":      `UPDATE keytill.findings SET kind = 'whatever'`,
	"findings_open":            `INSERT INTO keytill.findings (merchant_id, kind, subject, detail, opened_at) VALUES ('default', 'inquiry', 'dp_1', 'again', now())`,

	"reservations_ref_check":            `UPDATE keytill.reservations SET ref = ''`,
	"reservations_keys_check":           `UPDATE keytill.reservations SET keys = -1`,
	"reservations_ahead_check":          `UPDATE keytill.reservations SET ahead = -1`,
	"reservation_attempts_result_check": `UPDATE keytill.reservation_attempts SET result = 'perhaps'`,
	"sweep_spans_check":                 `UPDATE keytill.sweep_spans SET created_to = created_from`,
	"api_requests_check":                `UPDATE keytill.api_requests SET status = 200`,
}

// The list is held against the catalog, so that neither a constraint can be dropped nor one added without a statement that
// it refuses.
func TestTheSchemaRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if _, err := db.Exec(t.Context(), world); err != nil {
		t.Fatal(err)
	}
	for constraint, statement := range refused {
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), statement); err != nil {
				return err
			}
			return errTaken
		})
		var pgErr *pgconn.PgError
		if !errors.As(err, &pgErr) || pgErr.ConstraintName != constraint {
			t.Errorf("%s does not refuse it: %v\n%s", constraint, err, statement)
		}
	}
	inSchema := list(t, db, `
SELECT conname::text FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid
 WHERE contype IN ('c', 'u') AND connamespace = 'keytill'::regnamespace AND relname !~ '^(river|goose)'
UNION
SELECT i.relname::text FROM pg_index JOIN pg_class i ON i.oid = indexrelid JOIN pg_class t ON t.oid = indrelid
 WHERE indisunique AND NOT indisprimary AND i.relnamespace = 'keytill'::regnamespace AND t.relname !~ '^(river|goose)'
 ORDER BY 1`)
	for _, constraint := range inSchema {
		if refused[constraint] == "" {
			t.Errorf("nothing here is refused by %s", constraint)
		}
	}
	for constraint := range refused {
		if !slices.Contains(inSchema, constraint) {
			t.Errorf("the schema has no %s", constraint)
		}
	}
}

var errTaken = errors.New("the database took it")
