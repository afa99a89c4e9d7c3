-- +goose Up

-- What pages show is summed up before they ask. The figures of a pool are up to a horizon, as its stock is: what has come
-- since is read beside them, so that the sums are exact. Those that are counted anew each time (what waits, what carts hold)
-- are of the last minute here, and pages use them only where there is too much to count while somebody waits.
CREATE TABLE keytill.pool_figures (
    merchant_id   text NOT NULL,
    pool_id       bigint NOT NULL,
    horizon       xid8 NOT NULL DEFAULT '0',
    folded_at     timestamptz,                -- null: never
    sold          bigint NOT NULL DEFAULT 0,  -- keys, in the seven days before folded_at
    tried         bigint NOT NULL DEFAULT 0,  -- reservations, in the day before
    sold_out      bigint NOT NULL DEFAULT 0,  -- … that found nothing
    counted_at    timestamptz,                -- null: never
    waiting       bigint NOT NULL DEFAULT 0,
    waiting_since timestamptz,
    held          bigint[] NOT NULL DEFAULT '{0,0,0,0}', -- keys in carts for up to 5 minutes, 15, an hour, more
    need          bigint NOT NULL DEFAULT 0,  -- who needs somebody most has the most
    PRIMARY KEY (merchant_id, pool_id),
    FOREIGN KEY (merchant_id, pool_id) REFERENCES keytill.pools
);
CREATE INDEX pool_figures_need ON keytill.pool_figures (merchant_id, need DESC, pool_id);

-- What the sliding sums are made of.
CREATE TABLE keytill.pool_hours (
    merchant_id text NOT NULL,
    pool_id     bigint NOT NULL,
    hour        timestamptz NOT NULL,
    sold        bigint NOT NULL DEFAULT 0,
    tried       bigint NOT NULL DEFAULT 0,
    sold_out    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (merchant_id, pool_id, hour)
);

-- A batch's keys by state, up to its pool's horizon.
CREATE TABLE keytill.batch_counts (
    merchant_id text NOT NULL,
    batch_id    bigint NOT NULL,
    state       text NOT NULL,
    keys        bigint NOT NULL,
    PRIMARY KEY (merchant_id, batch_id, state),
    FOREIGN KEY (merchant_id, batch_id) REFERENCES keytill.batches
);

-- All pools of a merchant together, as of a minute: for shops with too many of them to sum up while somebody waits.
CREATE TABLE keytill.shop_figures (
    merchant_id text PRIMARY KEY,
    figures     jsonb NOT NULL,
    counted_at  timestamptz NOT NULL
);

-- Reservations that were tried are folded like movements.
ALTER TABLE keytill.reservation_attempts ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX reservation_attempts_tail ON keytill.reservation_attempts (merchant_id, pool_id, xid, attempt_id);

-- Lists begin where the page before ended.
CREATE INDEX fulfilments_waiting_orders ON keytill.fulfilments (merchant_id, coalesce(paid_at, 'epoch'), order_id)
    WHERE state = 'waiting';
CREATE INDEX batches_pool ON keytill.batches (merchant_id, pool_id, batch_id);
CREATE INDEX price_map_pool ON keytill.price_map (merchant_id, pool_id, item);
DROP INDEX keytill.keys_batch;
CREATE INDEX keys_batch ON keytill.keys (merchant_id, batch_id, key_id);
DROP INDEX keytill.orders_email;
CREATE INDEX orders_email ON keytill.orders (merchant_id, lower(email), placed_at) WHERE email <> '';
