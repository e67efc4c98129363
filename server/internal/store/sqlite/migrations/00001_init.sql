-- Every table below tenants carries tenant_id, also in its foreign keys, so that no row can refer
-- to a row of another tenant. Times are unix microseconds, NULL where there is none. Booleans are
-- 0 or 1. Words that agents report (sync, health) have no CHECK: one word from a newer agent must
-- not fail the batch that it arrives in.

-- +goose Up
CREATE TABLE tenants (
    id         TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    name       TEXT    NOT NULL UNIQUE CHECK (name <> ''),
    created_at INTEGER NOT NULL
) STRICT;

-- A tenant is a wall: nothing falls with it by accident, hence RESTRICT everywhere below it.
CREATE TABLE agents (
    tenant_id  TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id         TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    name       TEXT    NOT NULL CHECK (name <> ''),
    scope      TEXT    NOT NULL CHECK (scope IN ('cluster', 'namespaced')),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
) STRICT;

CREATE TABLE agent_labels (
    tenant_id TEXT NOT NULL,
    agent_id  TEXT NOT NULL,
    key       TEXT NOT NULL CHECK (key <> ''),
    value     TEXT NOT NULL,
    PRIMARY KEY (tenant_id, agent_id, key),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE agent_namespaces (
    tenant_id TEXT NOT NULL,
    agent_id  TEXT NOT NULL,
    namespace TEXT NOT NULL CHECK (namespace <> ''),
    PRIMARY KEY (tenant_id, agent_id, namespace),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE connections (
    tenant_id       TEXT    NOT NULL,
    agent_id        TEXT    NOT NULL,
    replica         TEXT    NOT NULL,
    session_id      TEXT    NOT NULL UNIQUE CHECK (session_id <> ''),
    version         TEXT    NOT NULL,
    kube_version    TEXT    NOT NULL,
    cluster_uid     TEXT    NOT NULL,
    remote_addr     TEXT    NOT NULL,
    connected_at    INTEGER NOT NULL,
    last_seen_at    INTEGER NOT NULL,
    disconnected_at INTEGER,
    PRIMARY KEY (tenant_id, agent_id, replica),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
) STRICT;

CREATE INDEX connections_open ON connections (tenant_id, agent_id, replica) WHERE disconnected_at IS NULL;

CREATE TABLE server_beat (
    one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    at  INTEGER NOT NULL
) STRICT;

-- 32 bytes are a SHA-256; a token itself never has that form, so it cannot be stored by mistake.
CREATE TABLE agent_tokens (
    tenant_id  TEXT    NOT NULL,
    id         TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    agent_id   TEXT    NOT NULL,
    hash       BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at INTEGER NOT NULL,
    revoked_at INTEGER,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
) STRICT;

CREATE INDEX agent_tokens_by_agent ON agent_tokens (tenant_id, agent_id, created_at, id);

CREATE TABLE api_tokens (
    id         TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    name       TEXT    NOT NULL,
    role       TEXT    NOT NULL CHECK (role <> ''),
    hash       BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE environments (
    tenant_id  TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id         TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    name       TEXT    NOT NULL CHECK (name <> ''),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
) STRICT;

-- Agents are named here, not referred to: an environment keeps the name of one that was deleted, for when it is enrolled anew.
CREATE TABLE environment_agents (
    tenant_id      TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    agent_name     TEXT NOT NULL CHECK (agent_name <> ''),
    PRIMARY KEY (tenant_id, environment_id, agent_name),
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE environment_match_labels (
    tenant_id      TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    key            TEXT NOT NULL CHECK (key <> ''),
    value          TEXT NOT NULL,
    PRIMARY KEY (tenant_id, environment_id, key),
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE repositories (
    tenant_id  TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id         TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    url        TEXT    NOT NULL CHECK (url <> ''),
    created_at INTEGER NOT NULL,
    checked_at INTEGER,
    error      TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, url)
) STRICT;

-- content comes last: a row is read up to the last column asked for, and the others are small.
CREATE TABLE bundles (
    tenant_id  TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    digest     TEXT    NOT NULL CHECK (digest <> ''),
    size       INTEGER NOT NULL CHECK (size >= 0),
    objects    INTEGER NOT NULL CHECK (objects >= 0),
    created_at INTEGER NOT NULL,
    content    BLOB    NOT NULL,
    PRIMARY KEY (tenant_id, digest)
) STRICT;

CREATE INDEX bundles_by_age ON bundles (tenant_id, created_at);

-- Repositories, environments and bundles in use cannot be deleted below a deployment.
CREATE TABLE deployments (
    tenant_id       TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id              TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    name            TEXT    NOT NULL CHECK (name <> ''),
    repository_id   TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    revision        TEXT    NOT NULL,
    environment_id  TEXT    NOT NULL,
    namespace       TEXT    NOT NULL,
    prune           INTEGER NOT NULL CHECK (prune IN (0, 1)),
    adopt           INTEGER NOT NULL CHECK (adopt IN (0, 1)),
    allow_empty     INTEGER NOT NULL CHECK (allow_empty IN (0, 1)),
    created_at      INTEGER NOT NULL,
    deleted_at      INTEGER,
    rendered_commit TEXT    NOT NULL,
    rendered_key    TEXT    NOT NULL,
    rendered_digest TEXT    CHECK (rendered_digest <> ''),
    rendered_at     INTEGER,
    source_error    TEXT    NOT NULL,
    source_at       INTEGER,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repositories (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (tenant_id, rendered_digest) REFERENCES bundles (tenant_id, digest) ON DELETE RESTRICT
) STRICT;

CREATE UNIQUE INDEX deployments_by_live_name ON deployments (tenant_id, name) WHERE deleted_at IS NULL;
CREATE INDEX deployments_by_name ON deployments (tenant_id, name, id);
CREATE INDEX deployments_by_repository ON deployments (tenant_id, repository_id, name);
CREATE INDEX deployments_by_environment ON deployments (tenant_id, environment_id, name);
CREATE INDEX deployments_by_digest ON deployments (tenant_id, rendered_digest);

CREATE TABLE deployment_globs (
    tenant_id     TEXT    NOT NULL,
    deployment_id TEXT    NOT NULL,
    position      INTEGER NOT NULL CHECK (position >= 0),
    glob          TEXT    NOT NULL CHECK (glob <> ''),
    PRIMARY KEY (tenant_id, deployment_id, position),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Targets fall with their agent, but hold their deployment: its tombstones have to arrive first.
-- observed_digest is what an agent says and so refers to nothing.
CREATE TABLE targets (
    tenant_id           TEXT    NOT NULL,
    id                  TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    deployment_id       TEXT    NOT NULL,
    agent_id            TEXT    NOT NULL,
    desired_epoch       INTEGER NOT NULL,
    desired_generation  INTEGER NOT NULL,
    desired_digest      TEXT    CHECK (desired_digest <> ''),
    desired_commit      TEXT    NOT NULL,
    desired_namespace   TEXT    NOT NULL,
    desired_prune       INTEGER NOT NULL CHECK (desired_prune IN (0, 1)),
    desired_adopt       INTEGER NOT NULL CHECK (desired_adopt IN (0, 1)),
    desired_allow_empty INTEGER NOT NULL CHECK (desired_allow_empty IN (0, 1)),
    desired_hold_prune  INTEGER NOT NULL CHECK (desired_hold_prune IN (0, 1)),
    desired_tombstone   INTEGER NOT NULL CHECK (desired_tombstone IN (0, 1)),
    observed_epoch      INTEGER NOT NULL,
    observed_generation INTEGER NOT NULL,
    observed_digest     TEXT    NOT NULL,
    observed_sync       TEXT    NOT NULL,
    observed_health     TEXT    NOT NULL,
    observed_as_of      INTEGER,
    observed_message    TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, deployment_id, agent_id),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, desired_digest) REFERENCES bundles (tenant_id, digest) ON DELETE RESTRICT
) STRICT;

CREATE INDEX targets_by_agent ON targets (tenant_id, agent_id);
CREATE INDEX targets_by_digest ON targets (tenant_id, desired_digest);

-- The version of an object's API is how it is reached, not what it is, so it is not in the key.
CREATE TABLE target_objects (
    tenant_id   TEXT NOT NULL,
    target_id   TEXT NOT NULL,
    api_group   TEXT NOT NULL,
    kind        TEXT NOT NULL,
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    api_version TEXT NOT NULL,
    sync        TEXT NOT NULL,
    health      TEXT NOT NULL,
    message     TEXT NOT NULL,
    PRIMARY KEY (tenant_id, target_id, api_group, kind, namespace, name),
    FOREIGN KEY (tenant_id, target_id) REFERENCES targets (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- AUTOINCREMENT: a number that was seen is never given again, even when the newest rows are gone.
CREATE TABLE events (
    seq        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant_id  TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    at         INTEGER NOT NULL,
    type       TEXT    NOT NULL CHECK (type IN ('Normal', 'Warning')),
    reason     TEXT    NOT NULL,
    agent      TEXT    NOT NULL,
    deployment TEXT    NOT NULL,
    object     TEXT    NOT NULL,
    message    TEXT    NOT NULL
) STRICT;

CREATE INDEX events_by_tenant ON events (tenant_id, seq);
CREATE INDEX events_by_agent ON events (tenant_id, agent, seq);
CREATE INDEX events_by_deployment ON events (tenant_id, deployment, seq);

-- The outbox refers to nothing: its records outlive the rows that they are about.
CREATE TABLE changes (
    seq           INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant_id     TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    agent_id      TEXT    NOT NULL,
    deployment_id TEXT    NOT NULL,
    at            INTEGER NOT NULL
) STRICT;

CREATE INDEX changes_by_tenant ON changes (tenant_id, seq);
