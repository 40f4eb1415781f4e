CREATE TABLE owners(owner BLOB PRIMARY KEY, epoch INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE entries(owner BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL,
                       PRIMARY KEY(owner, key)) STRICT, WITHOUT ROWID;
PRAGMA application_id=1768846188;
PRAGMA user_version=1;
INSERT INTO owners VALUES(CAST('foq6raudoittgfigzadda5sju4' AS BLOB), 10);
INSERT INTO owners VALUES(CAST('olduse' AS BLOB), 7);
INSERT INTO entries VALUES(CAST('olduse' AS BLOB), CAST('@alarm/' AS BLOB), CAST((CAST(strftime('%s','now') AS INTEGER) + 86400) || '000 86400000 132740945 3e8f664f-9247-47fd-a258-88abe02e0fb3 7.1' AS BLOB));
INSERT INTO entries VALUES(CAST('olduse' AS BLOB), CAST('idempotency/exec/6be59f4b1fc3ace301c83f0caaed2e2087b597c2f49098820f9c04d5d26518de' AS BLOB), CAST('4d04508091be3acc7e1c9bebafa5d9d15bf4db2e05bed95435b81f1a060f1ffd' || char(10) || (CAST(strftime('%s','now') AS INTEGER) - 60) || '000' || char(10) || '1795721020959' AS BLOB));
