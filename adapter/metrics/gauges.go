package metrics

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
}

// namedPools bounds how many pools have a name of their own: the first 500. The rest are summed up as one.
const namedPools = `
WITH named AS (
    SELECT merchant_id, pool_id,
           CASE WHEN n <= 500 THEN merchant_id ELSE '_other' END AS merchant, CASE WHEN n <= 500 THEN sku ELSE '_other' END AS sku
      FROM (SELECT merchant_id, pool_id, sku, row_number() OVER (ORDER BY merchant_id, pool_id) AS n FROM keytill.pools) AS p
)`

const (
	// From the ledger, as the inventory counts: what is folded, and the movements since. A pool whose horizon is another
	// cluster's is left out until it is counted anew. Index: stock_pkey, movements_pkey.
	stockGauge = namedPools + `
SELECT merchant, sku, state, sum(keys)::float8
  FROM (SELECT merchant_id, pool_id, 'available' AS state, 0::bigint AS keys FROM keytill.stock
        UNION ALL
        SELECT s.merchant_id, s.pool_id, c.key, c.value::bigint
          FROM keytill.stock s, jsonb_each_text(s.counts) c
        UNION ALL
        SELECT s.merchant_id, s.pool_id, ends.state, ends.keys
          FROM keytill.stock s
         CROSS JOIN LATERAL (SELECT m.from_state, m.to_state, m.keys FROM keytill.movements m
                              WHERE m.merchant_id = s.merchant_id AND m.pool_id = s.pool_id AND m.xid >= s.horizon
                              ORDER BY m.xid, m.movement_id OFFSET 0) AS tail
         CROSS JOIN LATERAL (VALUES (tail.to_state, tail.keys), (tail.from_state, -tail.keys)) AS ends (state, keys)
         WHERE ends.state IS NOT NULL) AS parts
  JOIN named USING (merchant_id, pool_id)
 WHERE EXISTS (SELECT 1 FROM keytill.stock h
                WHERE h.merchant_id = parts.merchant_id AND h.pool_id = parts.pool_id
                  AND h.horizon <= pg_snapshot_xmin(pg_current_snapshot()))
 GROUP BY merchant, sku, state`

	// Index: fulfilments_waiting.
	waitingGauge = namedPools + `
SELECT merchant, sku, count(*)::float8, extract(epoch FROM $1::timestamptz - min(coalesce(paid_at, changed_at)))::float8
  FROM keytill.fulfilments JOIN named USING (merchant_id, pool_id)
 WHERE state = 'waiting'
 GROUP BY merchant, sku`

	// What waits for its release date is not late. Index: deliveries_open.
	undeliveredGauge = `
SELECT c.channel, count(d.channel)::float8, coalesce(extract(epoch FROM $1::timestamptz - min(d.send_after)), 0)::float8
  FROM unnest(ARRAY['email', 'hook', 'process']) AS c (channel)
  LEFT JOIN keytill.deliveries d ON d.channel = c.channel AND d.state = 'pending' AND d.send_after <= $1
 GROUP BY c.channel`

	// All of the table: a row for each cart and pool, and only until its time is up.
	reservedGauge = `
SELECT b.age, coalesce(sum(r.keys), 0)::float8
  FROM (VALUES ('under 5m', interval '-1 day', interval '5 minutes'), ('5m to 15m', interval '5 minutes', interval '15 minutes'),
               ('15m to 1h', interval '15 minutes', interval '1 hour'), ('over 1h', interval '1 hour', interval '100 years')
       ) AS b (age, least, below)
  LEFT JOIN keytill.reservations r
         ON r.expires_at > $1 AND r.created_at <= $1::timestamptz - b.least AND r.created_at > $1::timestamptz - b.below
 GROUP BY b.age`

	// Index: events_due.
	pendingEventsGauge = `
SELECT count(*)::float8, coalesce(extract(epoch FROM $1::timestamptz - min(received_at)), 0)::float8
  FROM keytill.events WHERE state = 'pending'`

	// Index: events_received, one row a merchant.
	lastEventGauge = `
SELECT extract(epoch FROM $1::timestamptz - max(last.received_at))::float8
  FROM keytill.merchants m
 CROSS JOIN LATERAL (SELECT e.received_at FROM keytill.events e
                      WHERE e.merchant_id = m.merchant_id AND NOT e.swept ORDER BY e.received_at DESC LIMIT 1) AS last`

	// Of the merchant that was not swept for the longest time. Index: sweeps_started, one row a merchant.
	sweepGauge = `
SELECT extract(epoch FROM $1::timestamptz - min(last.ended_at))::float8
  FROM keytill.merchants m
 CROSS JOIN LATERAL (SELECT s.ended_at FROM keytill.sweeps s
                      WHERE s.merchant_id = m.merchant_id AND s.ended_at IS NOT NULL
                      ORDER BY s.started_at DESC LIMIT 1) AS last`

	// Completed jobs, which are most of the table, are not counted. Index: river_job_prioritized_fetching_index.
	jobsGauge = `
SELECT queue, state::text, count(*)::float8
  FROM keytill.river_job
 WHERE state IN ('available', 'pending', 'running', 'scheduled', 'retryable', 'discarded')
 GROUP BY queue, state`

	// Index: findings_open.
	findingsGauge = `SELECT kind, count(*)::float8 FROM keytill.findings WHERE closed_at IS NULL GROUP BY kind`
)

// gauges are what is read of the database.
var gauges = []gauge{
	{name: "stock", sql: stockGauge, labels: 3, descs: []*prometheus.Desc{
		desc("stock_keys", "Keys by pool and state.", "merchant", "sku", "state")}},
	{name: "waiting", sql: waitingGauge, labels: 2, timed: true, descs: []*prometheus.Desc{
		desc("waiting_units", "Paid units that wait for stock, by pool.", "merchant", "sku"),
		desc("waiting_oldest_seconds", "How long the oldest of them has been paid for.", "merchant", "sku")}},
	{name: "undelivered", sql: undeliveredGauge, labels: 1, timed: true, descs: []*prometheus.Desc{
		desc("undelivered", "Notices that are due and not delivered, by channel.", "channel"),
		desc("undelivered_oldest_seconds", "How long the oldest of them has been due.", "channel")}},
	{name: "reserved", sql: reservedGauge, labels: 1, timed: true, descs: []*prometheus.Desc{
		desc("reserved_keys", "Keys that carts hold, by how long.", "age")}},
	{name: "pending events", sql: pendingEventsGauge, timed: true, descs: []*prometheus.Desc{
		desc("events_pending", "Events that are recorded and not settled."),
		desc("events_pending_oldest_seconds", "How long ago the oldest of them came.")}},
	{name: "last event", sql: lastEventGauge, timed: true, descs: []*prometheus.Desc{
		desc("event_age_seconds", "Time since Stripe last sent an event.")}},
	{name: "sweep", sql: sweepGauge, timed: true, descs: []*prometheus.Desc{
		desc("sweep_age_seconds", "Time since the last sweep ended, of the merchant that waits for the longest.")}},
	{name: "jobs", sql: jobsGauge, labels: 2, descs: []*prometheus.Desc{
		desc("jobs", "Jobs that are not completed, by queue and state.", "queue", "state")}},
	{name: "findings", sql: findingsGauge, labels: 1, descs: []*prometheus.Desc{
		desc("findings_open", "Findings that wait for a person, by kind.", "kind")}},
}
