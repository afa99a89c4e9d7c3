-- +goose Up

-- Payments that came to nothing before they became orders, with the settle that found so. A settle with an older reading
-- that comes later must not make an order of one. Rows are of use only while such a settle may be under way.
CREATE TABLE keytill.came_to_nothing (
    merchant_id text NOT NULL,
    payment     text NOT NULL,
    ticket      bigint NOT NULL,
    at          timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, payment)
);
