-- +goose Up

-- What is held before payment: how many keys of each pool for a reference, and how many more may be sold ahead. The keys
-- themselves carry the reference; a row here outlives them only until its time is up.
CREATE TABLE keytill.reservations (
    merchant_id text NOT NULL,
    ref         text NOT NULL CHECK (ref <> ''),
    pool_id     bigint NOT NULL,
    keys        int NOT NULL CHECK (keys >= 0),
    ahead       int NOT NULL CHECK (ahead >= 0), -- sold ahead of stock, within the pool's pending supply
    expires_at  timestamptz NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, ref, pool_id),
    FOREIGN KEY (merchant_id, pool_id) REFERENCES keytill.pools
);
CREATE INDEX reservations_pool ON keytill.reservations (merchant_id, pool_id, expires_at);

-- How reservations ended, for the rate at which buyers find nothing. Kept for a month.
CREATE TABLE keytill.reservation_attempts (
    merchant_id text NOT NULL,
    attempt_id  bigint GENERATED ALWAYS AS IDENTITY,
    pool_id     bigint NOT NULL,
    at          timestamptz NOT NULL,
    result      text NOT NULL CHECK (result IN ('ok', 'backorder', 'sold_out', 'too_many')),
    PRIMARY KEY (merchant_id, attempt_id)
);
CREATE INDEX reservation_attempts_at ON keytill.reservation_attempts (merchant_id, at);

ALTER TABLE keytill.pools
    ADD COLUMN low_keys    bigint CHECK (low_keys >= 0),           -- tell when no more are left; null: do not
    ADD COLUMN low_percent int CHECK (low_percent BETWEEN 1 AND 99), -- … or no more than this of what was last stocked
    ADD COLUMN low_told    boolean NOT NULL DEFAULT false,          -- told since the last restock
    ADD COLUMN out_told    boolean NOT NULL DEFAULT false,
    ADD COLUMN last_stock  bigint NOT NULL DEFAULT 0,               -- available after the last import
    ADD COLUMN max_reserved bigint CHECK (max_reserved >= 0);       -- keys that may be held at once; null: any number

ALTER TABLE keytill.batches
    ADD COLUMN state text NOT NULL DEFAULT 'imported' CHECK (state IN ('imported', 'quarantined', 'recalled'));

ALTER TABLE keytill.keys ADD COLUMN use_by date; -- not sold after this day
CREATE INDEX keys_use_by ON keytill.keys (merchant_id, use_by) WHERE use_by IS NOT NULL AND state IN ('available', 'reserved');
CREATE INDEX keys_batch ON keytill.keys (merchant_id, batch_id);

-- Notices about stock and findings belong to no order.
ALTER TABLE keytill.deliveries ALTER COLUMN order_id DROP NOT NULL;
ALTER TABLE keytill.deliveries ADD COLUMN subject jsonb NOT NULL DEFAULT '{}';

