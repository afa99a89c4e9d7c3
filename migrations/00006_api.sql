-- +goose Up

-- Writes of the API that carried an Idempotency-Key, with their answers, for a day: the same request again gets the same
-- answer. The hash is of the request; no answer that holds a key is kept here.
CREATE TABLE keytill.api_requests (
    merchant_id  text NOT NULL,
    actor        text NOT NULL, -- the name of the token: a key is of who made it up
    request_key  text NOT NULL,
    request_hash bytea NOT NULL,
    begun_at     timestamptz NOT NULL,
    done_at      timestamptz, -- null: under way, or its process died
    expires_at   timestamptz NOT NULL,
    status       int,
    content_type text,
    body         bytea,
    PRIMARY KEY (merchant_id, actor, request_key),
    CHECK ((done_at IS NULL) = (status IS NULL))
);
CREATE INDEX api_requests_expired ON keytill.api_requests (merchant_id, expires_at);

-- Lists are read a page at a time, from where the last page ended.
CREATE INDEX orders_placed ON keytill.orders (merchant_id, placed_at, order_id);
CREATE INDEX orders_payment_placed ON keytill.orders (merchant_id, payment, placed_at, order_id);
CREATE INDEX findings_listed ON keytill.findings (merchant_id, finding_id) WHERE closed_at IS NULL;
CREATE INDEX findings_of_order ON keytill.findings (merchant_id, order_id, finding_id) WHERE order_id IS NOT NULL;

-- What happened to an order: its events, beside the keys' movements and the deliveries.
CREATE INDEX events_of_payment ON keytill.events (merchant_id, payment, ticket);

-- How much was sold lately. Rows come in the order of their time, so that a BRIN index is a few pages and costs a claim
-- nothing.
CREATE INDEX movements_at ON keytill.movements USING brin (at) WITH (autosummarize = on);
