-- +goose Up

-- A link to the buyer's page carries the number that its order had when it was made: raising it ends all links so far.
ALTER TABLE keytill.orders ADD COLUMN link_serial int NOT NULL DEFAULT 0;

ALTER TABLE keytill.fulfilments ADD COLUMN revealed_at timestamptz; -- when the buyer first saw the key on their page

-- A mail that could not hold all its keys, since they were taken back before it was sent: when they are restored, the
-- buyer gets another.
ALTER TABLE keytill.deliveries ADD COLUMN revivable boolean NOT NULL DEFAULT false;
CREATE INDEX deliveries_revivable ON keytill.deliveries (merchant_id, order_id) WHERE revivable;

-- What a licence server must hear of: keys that were sold and may no longer be used, or may be used again.
CREATE INDEX movements_changes ON keytill.movements (merchant_id, xid, movement_id)
    WHERE from_state IN ('allocated', 'suspended', 'revoked') AND to_state IN ('allocated', 'suspended', 'revoked');

-- Whether the storefront was told, if it wants to be. What was opened before it could be told is not told any more.
ALTER TABLE keytill.findings ADD COLUMN told boolean NOT NULL DEFAULT true;
ALTER TABLE keytill.findings ALTER COLUMN told SET DEFAULT false;
CREATE INDEX findings_untold ON keytill.findings (merchant_id, finding_id) WHERE NOT told;
