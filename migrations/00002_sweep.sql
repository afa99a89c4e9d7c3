-- +goose Up

-- One sweep of a merchant at a time. A lease ends by itself, so nobody has to clean up after a process that died.
CREATE TABLE keytill.sweep_leases (
    merchant_id text PRIMARY KEY,
    holder      text NOT NULL,
    taken_at    timestamptz NOT NULL,
    expires_at  timestamptz NOT NULL
);

-- How far the walk over a kind of Stripe's objects has come. Everything that was created before the horizon has been
-- walked, except for what sweep_spans holds.
CREATE TABLE keytill.sweep_cursors (
    merchant_id text NOT NULL,
    kind        text NOT NULL,
    horizon     timestamptz NOT NULL,
    walking     boolean NOT NULL DEFAULT false, -- a walk is under way, or its process died
    looked_at   timestamptz, -- when the last walk began that left nothing out,
    looked_from timestamptz, -- and the times of creation that it covered
    looked_to   timestamptz,
    PRIMARY KEY (merchant_id, kind)
);

-- Times of creation that are still to be walked: the rest of a walk under way, and what could not be read so far. Spans of
-- one kind do not overlap.
CREATE TABLE keytill.sweep_spans (
    merchant_id  text NOT NULL,
    kind         text NOT NULL,
    created_from timestamptz NOT NULL, -- inclusive
    created_to   timestamptz NOT NULL, -- exclusive; comes down with each page, since lists begin with the newest
    after        text NOT NULL DEFAULT '', -- the last object of the last page
    moved_at     timestamptz NOT NULL,
    note         text NOT NULL DEFAULT '', -- why it could not be read
    PRIMARY KEY (merchant_id, kind, created_from),
    CHECK (created_from < created_to)
);

-- Payments that differ and are not settled yet, those that could not be included.
CREATE TABLE keytill.sweep_todo (
    merchant_id text NOT NULL,
    ref         text NOT NULL, -- what to settle
    kind        text NOT NULL, -- of the object that differed last
    object_ids  text[] NOT NULL, -- all that differed,
    digests     bytea[] NOT NULL, -- and what was compared of each
    reason      text NOT NULL,
    payment     text NOT NULL DEFAULT '', -- the order's payment state then; empty: no order
    created_at  timestamptz NOT NULL, -- the object's; the oldest is settled first
    known_at    timestamptz NOT NULL, -- since when the difference could be known
    attempts    int NOT NULL DEFAULT 0,
    tried_in    bigint, -- the sweep that tried last
    note        text NOT NULL DEFAULT '', -- why the last try failed
    PRIMARY KEY (merchant_id, ref)
);
CREATE INDEX sweep_todo_oldest ON keytill.sweep_todo (merchant_id, created_at, ref);

-- Objects that a settle has looked at. One that still differs, and is as it was then, is not looked at again.
CREATE TABLE keytill.sweep_looked (
    merchant_id text NOT NULL,
    object_id   text NOT NULL,
    digest      bytea NOT NULL,
    looked_at   timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, object_id)
);
CREATE INDEX sweep_looked_oldest ON keytill.sweep_looked (merchant_id, looked_at);

-- The report of each run. One without an end died, or is under way.
CREATE TABLE keytill.sweeps (
    merchant_id text NOT NULL,
    sweep_id    bigint GENERATED ALWAYS AS IDENTITY,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    report      jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (merchant_id, sweep_id)
);
CREATE INDEX sweeps_started ON keytill.sweeps (merchant_id, started_at);

-- An event that a sweep found in Stripe's list: it says nothing about whether the endpoint works.
ALTER TABLE keytill.events ADD COLUMN swept boolean NOT NULL DEFAULT false;
CREATE INDEX events_received ON keytill.events (merchant_id, received_at) WHERE NOT swept;

-- What is still open however old it is.
CREATE INDEX orders_pending ON keytill.orders (merchant_id, order_id) WHERE payment = 'pending';
CREATE INDEX refunds_open ON keytill.refunds (merchant_id, refund_id) WHERE status IN ('pending', 'requires_action');
CREATE INDEX disputes_open ON keytill.disputes (merchant_id, dispute_id)
    WHERE status NOT IN ('won', 'lost', 'warning_closed', 'prevented');

-- Kinds come with time: "silence" is that of the webhook's endpoint.
ALTER TABLE keytill.findings DROP CONSTRAINT findings_kind_check;
ALTER TABLE keytill.findings ADD CONSTRAINT findings_kind_check CHECK (kind IN ('unknown_price', 'unattributed_refund',
    'amount_mismatch', 'inquiry', 'fraud_warning', 'unknown_status', 'unknown_account', 'no_recipient', 'shortage',
    'undeliverable', 'silence'));
