-- +goose Up

-- Every primary and unique key begins with merchant_id, and no foreign key lacks it, so that the whole schema can be
-- distributed by merchant. Foreign keys stand only where a row is written once for its parent: one from keys,
-- fulfilments or movements to pools would lock the pool's row in every claim, and a popular pool has one row.

-- One number line for everything that happens: an event takes a number when it is received, a settle when it starts to
-- read Stripe. An event with a smaller number than a settle was therefore received before that settle's read began, and
-- of two settles the one with the larger number read later.
CREATE SEQUENCE keytill.ticket;

-- Ids of keys are taken in blocks of 1,000 by an import, since a key is encrypted under its id before it is stored.
CREATE SEQUENCE keytill.key_block;

CREATE TABLE keytill.merchants (
    merchant_id    text PRIMARY KEY CHECK (merchant_id ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    stripe_account text,        -- null: the platform's own account
    channels       text[] NOT NULL DEFAULT '{}', -- the delivery channels its daemon serves
    created_at     timestamptz NOT NULL
);
INSERT INTO keytill.merchants (merchant_id, created_at) VALUES ('default', now());

-- A value sealed with the keyset that the database's keys are sealed with: a daemon started on another keyset stops here.
CREATE TABLE keytill.canary (
    merchant_id text PRIMARY KEY,
    ciphertext  bytea NOT NULL,
    fingerprint bytea NOT NULL
);

CREATE TABLE keytill.pools (
    merchant_id    text NOT NULL REFERENCES keytill.merchants,
    pool_id        bigint GENERATED ALWAYS AS IDENTITY,
    sku            text NOT NULL CHECK (sku <> ''),
    name           text NOT NULL,
    shortage       text NOT NULL DEFAULT 'wait' CHECK (shortage IN ('wait', 'fail')),
    pending_supply bigint CHECK (pending_supply >= 0), -- null: no cap on what is sold ahead
    release_at     timestamptz,                        -- nothing is announced before
    created_at     timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, pool_id),
    UNIQUE (merchant_id, sku)
);

-- What a Stripe price or product id hands out. pool_id null: no keys here.
CREATE TABLE keytill.price_map (
    merchant_id text NOT NULL,
    item        text NOT NULL CHECK (item <> ''),
    pool_id     bigint,
    per_unit    int NOT NULL DEFAULT 1 CHECK (per_unit BETWEEN 1 AND 100),
    PRIMARY KEY (merchant_id, item),
    FOREIGN KEY (merchant_id, pool_id) REFERENCES keytill.pools
);

CREATE TABLE keytill.batches (
    merchant_id text NOT NULL,
    batch_id    bigint GENERATED ALWAYS AS IDENTITY,
    pool_id     bigint NOT NULL,
    file_name   text NOT NULL,
    file_hash   bytea NOT NULL,
    supplier    text NOT NULL DEFAULT '',
    actor       text NOT NULL,
    keys        bigint NOT NULL,
    report      jsonb NOT NULL DEFAULT '{}',
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, batch_id),
    FOREIGN KEY (merchant_id, pool_id) REFERENCES keytill.pools
);
CREATE INDEX batches_file ON keytill.batches (merchant_id, pool_id, file_hash);

CREATE TABLE keytill.keys (
    merchant_id    text NOT NULL,
    key_id         bigint NOT NULL,
    pool_id        bigint NOT NULL,
    batch_id       bigint NOT NULL,
    position       bigint NOT NULL, -- grows with import order; the claim takes the smallest
    state          text NOT NULL DEFAULT 'available' CHECK (state IN
        ('available', 'reserved', 'allocated', 'suspended', 'revoked', 'expired', 'quarantined')),
    ciphertext     bytea NOT NULL,
    fingerprint    bytea NOT NULL,
    order_id       text, -- the unit it is or was for
    line_id        text,
    unit           int,
    reserved_for   text,
    reserved_until timestamptz,
    PRIMARY KEY (merchant_id, key_id),
    CHECK (state NOT IN ('allocated', 'suspended') OR (order_id IS NOT NULL AND line_id IS NOT NULL AND unit IS NOT NULL)),
    CHECK (state NOT IN ('available', 'reserved', 'quarantined', 'expired') OR order_id IS NULL),
    CHECK ((state = 'reserved') = (reserved_for IS NOT NULL AND reserved_until IS NOT NULL))
);
CREATE UNIQUE INDEX keys_fingerprint ON keytill.keys (merchant_id, pool_id, fingerprint);
-- The last word on "no unit has two live keys", whatever the code does.
CREATE UNIQUE INDEX keys_live_unit ON keytill.keys (merchant_id, order_id, line_id, unit)
    WHERE state IN ('allocated', 'suspended');
CREATE INDEX keys_revoked_unit ON keytill.keys (merchant_id, order_id, line_id, unit)
    WHERE state = 'revoked';
-- The claim's index. position is in no other: the planner has been seen to walk such a one from its start.
CREATE INDEX keys_available ON keytill.keys (merchant_id, pool_id, position)
    WHERE state = 'available';
CREATE INDEX keys_reserved ON keytill.keys (merchant_id, pool_id, reserved_until)
    WHERE state = 'reserved';
CREATE INDEX keys_reserved_for ON keytill.keys (merchant_id, reserved_for)
    WHERE state = 'reserved';

CREATE SEQUENCE keytill.movement_id;

-- Append-only. One row for each change of a key's state; an import is one row for all its keys (key_id null).
-- xid is what a fold of the ledger uses as its horizon: numbers from a sequence commit out of order, the oldest
-- running transaction is sound.
CREATE TABLE keytill.movements (
    merchant_id text NOT NULL,
    pool_id     bigint NOT NULL,
    xid         xid8 NOT NULL DEFAULT pg_current_xact_id(),
    movement_id bigint NOT NULL DEFAULT nextval('keytill.movement_id'),
    key_id      bigint,
    keys        bigint NOT NULL DEFAULT 1,
    batch_id    bigint,
    from_state  text, -- null: imported
    to_state    text NOT NULL,
    order_id    text,
    line_id     text,
    unit        int,
    reason      text NOT NULL,
    actor       text NOT NULL,
    event_id    text,
    at          timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, pool_id, xid, movement_id),
    CHECK ((from_state IS NULL) = (key_id IS NULL)),
    CHECK (key_id IS NULL OR keys = 1),
    CHECK (from_state IS DISTINCT FROM to_state)
);
CREATE INDEX movements_key ON keytill.movements (merchant_id, key_id, movement_id) WHERE key_id IS NOT NULL;

-- Counts by state: what is folded of the ledger up to the horizon. A reader adds the movements from the horizon on.
CREATE TABLE keytill.stock (
    merchant_id text NOT NULL,
    pool_id     bigint NOT NULL,
    horizon     xid8 NOT NULL DEFAULT '0',
    counts      jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (merchant_id, pool_id),
    FOREIGN KEY (merchant_id, pool_id) REFERENCES keytill.pools
);

CREATE TABLE keytill.events (
    merchant_id text NOT NULL,
    event_id    text NOT NULL,
    type        text NOT NULL,
    object_id   text NOT NULL,
    payment     text NOT NULL, -- what to look at: the object's PaymentIntent, else its charge, else itself
    account     text NOT NULL DEFAULT '',
    livemode    boolean NOT NULL,
    api_version text NOT NULL DEFAULT '',
    created_at  timestamptz,
    ticket      bigint NOT NULL DEFAULT nextval('keytill.ticket'),
    received_at timestamptz NOT NULL,
    state       text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'done', 'ignored')),
    attempts    int NOT NULL DEFAULT 0,
    next_try_at timestamptz NOT NULL,
    done_at     timestamptz,
    note        text NOT NULL DEFAULT '',
    PRIMARY KEY (merchant_id, event_id)
);
CREATE INDEX events_payment ON keytill.events (merchant_id, payment) WHERE state = 'pending';
CREATE INDEX events_due ON keytill.events (merchant_id, next_try_at) WHERE state = 'pending';

CREATE TABLE keytill.orders (
    merchant_id         text NOT NULL,
    order_id            text NOT NULL CHECK (order_id <> ''), -- cs_…, or pi_… where there is no session
    payment_intent      text,
    charge              text,
    client_reference_id text,
    payment             text NOT NULL CHECK (payment IN
        ('pending', 'paid', 'part_refunded', 'refunded', 'disputed', 'lost', 'closed')),
    currency            text NOT NULL,
    amount_total        bigint NOT NULL, -- minor units, as all amounts
    amount_captured     bigint NOT NULL,
    amount_refunded     bigint NOT NULL,
    email               text NOT NULL DEFAULT '',
    name                text NOT NULL DEFAULT '',
    locale              text NOT NULL DEFAULT '',
    placed_at           timestamptz NOT NULL,
    paid_at             timestamptz,
    ticket              bigint NOT NULL, -- the settle that was applied last
    settled_at          timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, order_id)
);
-- Never two orders for one payment.
CREATE UNIQUE INDEX orders_payment_intent ON keytill.orders (merchant_id, payment_intent) WHERE payment_intent IS NOT NULL;
CREATE INDEX orders_charge ON keytill.orders (merchant_id, charge) WHERE charge IS NOT NULL;
CREATE INDEX orders_email ON keytill.orders (merchant_id, lower(email)) WHERE email <> '';

CREATE TABLE keytill.lines (
    merchant_id text NOT NULL,
    order_id    text NOT NULL,
    line_id     text NOT NULL,
    ordinal     int NOT NULL, -- its place in the order, from 1
    price       text NOT NULL,
    product     text NOT NULL,
    description text NOT NULL,
    quantity    bigint NOT NULL CHECK (quantity >= 0),
    amount      bigint NOT NULL,
    pool_id     bigint, -- null: not mapped yet, or keyless
    keyless     boolean NOT NULL DEFAULT false, -- its price was marked as no keys here, and this order keeps to that
    per_unit    int NOT NULL DEFAULT 1,
    PRIMARY KEY (merchant_id, order_id, line_id),
    FOREIGN KEY (merchant_id, order_id) REFERENCES keytill.orders,
    CHECK (pool_id IS NULL OR NOT keyless)
);
CREATE INDEX lines_unmapped_price ON keytill.lines (merchant_id, price) WHERE pool_id IS NULL AND NOT keyless;
CREATE INDEX lines_unmapped_product ON keytill.lines (merchant_id, product) WHERE pool_id IS NULL AND NOT keyless;

CREATE TABLE keytill.fulfilments (
    merchant_id text NOT NULL,
    order_id    text NOT NULL,
    line_id     text NOT NULL,
    unit        int NOT NULL CHECK (unit > 0), -- 1 … quantity × keys per unit
    pool_id     bigint NOT NULL,
    state       text NOT NULL CHECK (state IN ('pending', 'waiting', 'fulfilled', 'suspended', 'revoked', 'failed')),
    key_id      bigint,
    revoked_by  text CHECK (revoked_by IN ('payment', 'person')), -- a person's revocation is never undone by a payment
    paid_at     timestamptz, -- waiting units are served in this order
    changed_at  timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, order_id, line_id, unit),
    FOREIGN KEY (merchant_id, order_id, line_id) REFERENCES keytill.lines,
    CHECK (state <> 'fulfilled' OR key_id IS NOT NULL),
    CHECK (state NOT IN ('pending', 'waiting', 'failed') OR key_id IS NULL),
    CHECK ((state = 'revoked') = (revoked_by IS NOT NULL))
);
CREATE INDEX fulfilments_waiting ON keytill.fulfilments (merchant_id, pool_id, paid_at, order_id, line_id, unit)
    WHERE state = 'waiting';

CREATE TABLE keytill.refunds (
    merchant_id text NOT NULL,
    refund_id   text NOT NULL,
    order_id    text NOT NULL,
    amount      bigint NOT NULL,
    status      text NOT NULL,
    attribution text, -- what a person answered: li_…[:N],…, or none
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, refund_id),
    FOREIGN KEY (merchant_id, order_id) REFERENCES keytill.orders
);
CREATE INDEX refunds_order ON keytill.refunds (merchant_id, order_id);

CREATE TABLE keytill.disputes (
    merchant_id text NOT NULL,
    dispute_id  text NOT NULL,
    order_id    text NOT NULL,
    amount      bigint NOT NULL,
    status      text NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, dispute_id),
    FOREIGN KEY (merchant_id, order_id) REFERENCES keytill.orders
);
CREATE INDEX disputes_order ON keytill.disputes (merchant_id, order_id);

CREATE TABLE keytill.deliveries (
    merchant_id text NOT NULL,
    delivery_id bigint GENERATED ALWAYS AS IDENTITY,
    order_id    text NOT NULL,
    channel     text NOT NULL CHECK (channel IN ('email', 'hook', 'process')),
    type        text NOT NULL,
    recipient   text NOT NULL DEFAULT '',
    units       jsonb NOT NULL DEFAULT '[]', -- what changed, without keys: [{"line", "unit", "sku"}]
    state       text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'sent', 'failed', 'held', 'canceled')),
    attempts    int NOT NULL DEFAULT 0,
    answer      text NOT NULL DEFAULT '', -- the provider's
    last_error  text NOT NULL DEFAULT '',
    send_after  timestamptz NOT NULL,
    created_at  timestamptz NOT NULL,
    done_at     timestamptz,
    PRIMARY KEY (merchant_id, delivery_id),
    FOREIGN KEY (merchant_id, order_id) REFERENCES keytill.orders
);
CREATE INDEX deliveries_order ON keytill.deliveries (merchant_id, order_id);
CREATE INDEX deliveries_open ON keytill.deliveries (merchant_id, send_after) WHERE state = 'pending';

CREATE TABLE keytill.findings (
    merchant_id text NOT NULL,
    finding_id  bigint GENERATED ALWAYS AS IDENTITY,
    kind        text NOT NULL CHECK (kind IN ('unknown_price', 'unattributed_refund', 'amount_mismatch', 'inquiry',
        'fraud_warning', 'unknown_status', 'unknown_account', 'no_recipient', 'shortage', 'undeliverable')),
    subject     text NOT NULL, -- the price, order, dispute … it is about; open once a kind and subject
    order_id    text,          -- the order whose settle closes it; null: closed elsewhere
    detail      text NOT NULL,
    opened_at   timestamptz NOT NULL,
    closed_at   timestamptz,
    PRIMARY KEY (merchant_id, finding_id)
);
CREATE UNIQUE INDEX findings_open ON keytill.findings (merchant_id, kind, subject) WHERE closed_at IS NULL;
CREATE INDEX findings_order ON keytill.findings (merchant_id, order_id) WHERE closed_at IS NULL;

-- What people did: who revealed, revoked, replaced, imported what, when and why. Append-only, and without keys.
CREATE TABLE keytill.audit (
    merchant_id text NOT NULL,
    audit_id    bigint GENERATED ALWAYS AS IDENTITY,
    at          timestamptz NOT NULL,
    actor       text NOT NULL,
    action      text NOT NULL,
    order_id    text,
    subject     text NOT NULL, -- the unit, refund, batch, pool … it was done to
    reason      text NOT NULL DEFAULT '',
    PRIMARY KEY (merchant_id, audit_id)
);
CREATE INDEX audit_order ON keytill.audit (merchant_id, order_id) WHERE order_id IS NOT NULL;
