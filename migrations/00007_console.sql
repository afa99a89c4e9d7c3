-- +goose Up

-- Who is logged in to the console. The cookie's value is not here, only its hash; a session ends with its token, too.
CREATE TABLE keytill.console_sessions (
    merchant_id  text NOT NULL,
    session_hash bytea NOT NULL, -- SHA-256 of the secret in the cookie
    token_hash   bytea NOT NULL, -- SHA-256 of the token that logged in
    began_at     timestamptz NOT NULL,
    seen_at      timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, session_hash)
);

-- Files of keys between the dry run that a person sees and the import that they confirm: encrypted, for half an hour.
CREATE TABLE keytill.console_uploads (
    merchant_id text NOT NULL,
    upload_id   text NOT NULL,
    actor       text NOT NULL, -- the token's name: nobody else confirms it
    sku         text NOT NULL,
    settings    jsonb NOT NULL,
    report      jsonb NOT NULL, -- of the dry run
    ciphertext  bytea NOT NULL,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (merchant_id, upload_id)
);
-- Ciphertext does not get smaller by trying.
ALTER TABLE keytill.console_uploads ALTER COLUMN ciphertext SET STORAGE EXTERNAL;
