package mutants

// What has no mutant, though it protects: taken out alone, it changes nothing that a test could see.
//
//   - MATERIALIZED behind a WITH that locks rows: PostgreSQL never folds such a query into another (contain_dml in its
//     planner). The word says what the statement relies on.
//   - The guard in an UPDATE of rows that the same statement, or one before it in the transaction, has locked in the state
//     that it names: the claim's k.state, the units' state = u.was, the order's ticket < $16, serveUnits' state = 'waiting',
//     the rotation's ciphertext = u.was, releases of holds. The lock keeps the state; the guard is for the day on which
//     somebody takes the lock away, and then it is what the tests of the lock find.
//   - hmac.Equal and stripe-go's own in place of a comparison that ends early: both say the same, and tests do not measure
//     time. Tokens and sessions are not compared at all: they are found by their SHA-256.
//   - The order of an inbox's rows, and of events in one transaction: without it two transactions can wait for each other,
//     and the one that the database ends runs again (tx-deadlock).
//   - The merchant's length in what binds a ciphertext to its row: pool and key behind it have fixed lengths, so that no two
//     rows share it without. With a field of another length they could.
//   - The early look at Content-Length before a body is read: the reader behind it stops at the same byte.
//   - EXISTS in an import for the keys that are there already: the unique index refuses them too (index-fingerprint), with an
//     error in place of a report; the report is what import-duplicates-in-the-file is about.
//   - The holder in the renewal of a sweep's lease: a sweep that lost it is stopped by the next page that it writes
//     (sweep-page-and-place-together). Between two rounds of settles only the renewal would, and settles may run beside others.
//   - The look for orders that are there already, and for one payment twice, before new sales share a transaction: without it
//     the insertion makes fewer rows than it should, which ends the shared transaction, and each is settled alone.
//   - That no good-bye is said within a mail's message: the write that failed left its error in the connection's buffer, behind
//     which nothing is written any more. The words are for a client library that buffers in another way.
