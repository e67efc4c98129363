-- Every table below tenants carries tenant_id, also in its foreign keys, so that no row can refer
-- to a row of another tenant, but for what a grant allows: a deployment to an environment, and a
-- target to an agent, of the tenant that granted them. Names of those are copied, since a reader
-- of one tenant cannot join rows of another; names never change.
--
-- Times are unix microseconds, NULL where there is none. Booleans are 0 or 1. Words that agents
-- report (sync, health) have no CHECK: one word from a newer agent must not fail the batch that it
-- arrives in.

-- +goose Up
CREATE TABLE settings (
    one               INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    epoch             INTEGER NOT NULL CHECK (epoch > 0),
    suspended_at      INTEGER,
    suspended_by      TEXT    NOT NULL,
    suspension_reason TEXT    NOT NULL
) STRICT;

INSERT INTO settings (one, epoch, suspended_by, suspension_reason) VALUES (1, 1, '', '');

CREATE TABLE server_replicas (
    id         TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    address    TEXT    NOT NULL,
    version    TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    beat_at    INTEGER NOT NULL
) STRICT;

-- A quota of 0 is none.
CREATE TABLE tenants (
    id                 TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    name               TEXT    NOT NULL UNIQUE CHECK (name <> ''),
    quota_agents       INTEGER NOT NULL CHECK (quota_agents >= 0),
    quota_environments INTEGER NOT NULL CHECK (quota_environments >= 0),
    quota_repositories INTEGER NOT NULL CHECK (quota_repositories >= 0),
    quota_deployments  INTEGER NOT NULL CHECK (quota_deployments >= 0),
    quota_targets      INTEGER NOT NULL CHECK (quota_targets >= 0),
    quota_tokens       INTEGER NOT NULL CHECK (quota_tokens >= 0),
    suspended_at       INTEGER,
    suspended_by       TEXT    NOT NULL,
    suspension_reason  TEXT    NOT NULL,
    created_at         INTEGER NOT NULL
) STRICT;

-- A tenant is a wall: what runs somewhere holds it (RESTRICT), and only what is about the tenant
-- itself falls with it (CASCADE).
CREATE TABLE members (
    tenant_id  TEXT    NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    kind       TEXT    NOT NULL CHECK (kind IN ('person', 'group')),
    subject    TEXT    NOT NULL CHECK (subject <> ''),
    role       TEXT    NOT NULL CHECK (role IN ('viewer', 'deployer', 'admin')),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, kind, subject)
) STRICT, WITHOUT ROWID;

CREATE INDEX members_by_subject ON members (kind, subject, tenant_id);

-- Whom the names of people stand for: issuer and subject are what an identity provider never gives to
-- anybody else. One person may have had several names; a name is never another's.
CREATE TABLE people (
    name         TEXT    NOT NULL PRIMARY KEY CHECK (name <> ''),
    issuer       TEXT    NOT NULL CHECK (issuer <> ''),
    subject      TEXT    NOT NULL CHECK (subject <> ''),
    display_name TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    logged_in_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What clusters offer to charts, once for all agents of a tenant that report the same.
CREATE TABLE agent_capabilities (
    tenant_id    TEXT NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    hash         TEXT NOT NULL CHECK (hash <> ''),
    kube_version TEXT NOT NULL,
    api_versions TEXT NOT NULL,
    PRIMARY KEY (tenant_id, hash)
) STRICT, WITHOUT ROWID;

-- connected says that the agent has an open connection: it is kept with them, in one transaction,
-- because a listing of thousands cannot ask for each.
CREATE TABLE agents (
    tenant_id    TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id           TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    name         TEXT    NOT NULL CHECK (name <> ''),
    scope        TEXT    NOT NULL CHECK (scope IN ('cluster', 'namespaced')),
    spec         INTEGER NOT NULL CHECK (spec > 0),
    connected    INTEGER NOT NULL CHECK (connected IN (0, 1)),
    created_at   INTEGER NOT NULL,
    capabilities TEXT,
    uninstalling INTEGER NOT NULL DEFAULT 0 CHECK (uninstalling IN (0, 1)),
    -- engine_namespace is the namespace of Argo CD in the cluster of the agent; empty if the agent applies by itself.
    engine_namespace TEXT    NOT NULL DEFAULT '',
    deliver_git_credentials INTEGER NOT NULL DEFAULT 0 CHECK (deliver_git_credentials IN (0, 1)),
    -- instance lets push environments be placed on the agent.
    instance INTEGER NOT NULL DEFAULT 0 CHECK (instance IN (0, 1)),
    -- draining moves the push environments of the agent to other ones.
    draining INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1)),
    -- tunnel lets callers with an access rule reach the API server of the cluster through the agent.
    tunnel INTEGER NOT NULL DEFAULT 0 CHECK (tunnel IN (0, 1)),
    -- included_kinds and excluded_kinds are lists of rules; the configuration file of the agent declares them if
    -- kinds_from_config is set.
    included_kinds TEXT    NOT NULL DEFAULT '',
    excluded_kinds TEXT    NOT NULL DEFAULT '',
    kinds_from_config INTEGER NOT NULL DEFAULT 0 CHECK (kinds_from_config IN (0, 1)),
    -- applications is the number of Applications of Argo CD that the agent does not manage.
    applications INTEGER NOT NULL DEFAULT 0 CHECK (applications >= 0),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name),
    FOREIGN KEY (tenant_id, capabilities) REFERENCES agent_capabilities (tenant_id, hash) ON DELETE RESTRICT
) STRICT;

CREATE INDEX agents_by_presence ON agents (tenant_id, connected, name, id);

CREATE INDEX agents_by_capabilities ON agents (tenant_id, capabilities);

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

-- Applications of Argo CD that the agent lists and does not manage.
CREATE TABLE agent_applications (
    tenant_id TEXT NOT NULL,
    agent_id  TEXT NOT NULL,
    name      TEXT NOT NULL CHECK (name <> ''),
    project   TEXT NOT NULL,
    repo_url  TEXT NOT NULL,
    path      TEXT NOT NULL,
    revision  TEXT NOT NULL,
    cluster   TEXT NOT NULL,
    namespace TEXT NOT NULL,
    sync      TEXT NOT NULL,
    health    TEXT NOT NULL,
    PRIMARY KEY (tenant_id, agent_id, name),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- server names a server_replicas row but does not refer to it: what a server held outlives it.
CREATE TABLE connections (
    tenant_id       TEXT    NOT NULL,
    agent_id        TEXT    NOT NULL,
    replica         TEXT    NOT NULL,
    session_id      TEXT    NOT NULL UNIQUE CHECK (session_id <> ''),
    server          TEXT    NOT NULL,
    version         TEXT    NOT NULL,
    kube_version    TEXT    NOT NULL,
    cluster_uid     TEXT    NOT NULL,
    engine_namespace TEXT   NOT NULL,
    remote_addr     TEXT    NOT NULL,
    standby         INTEGER NOT NULL CHECK (standby IN (0, 1)),
    connected_at    INTEGER NOT NULL,
    last_seen_at    INTEGER NOT NULL,
    disconnected_at INTEGER,
    PRIMARY KEY (tenant_id, agent_id, replica),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
) STRICT;

CREATE INDEX connections_by_agent ON connections (agent_id, replica);
CREATE INDEX connections_open ON connections (server, agent_id) WHERE disconnected_at IS NULL;

-- 32 bytes are a SHA-256; a token itself never has that form, so it cannot be stored by mistake.
CREATE TABLE agent_tokens (
    tenant_id  TEXT    NOT NULL,
    id         TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    agent_id   TEXT    NOT NULL,
    hash       BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    last_used  INTEGER,
    revoked_at INTEGER,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
) STRICT;

CREATE INDEX agent_tokens_by_agent ON agent_tokens (tenant_id, agent_id, created_at, id);

-- tenant_id is NULL for tokens of the fleet and for sessions. A session has a subject and no role
-- of its own; a token has a role and no subject.
CREATE TABLE api_tokens (
    id          TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    tenant_id   TEXT    REFERENCES tenants (id) ON DELETE CASCADE,
    name        TEXT    NOT NULL,
    role        TEXT    NOT NULL CHECK (role IN ('', 'viewer', 'deployer', 'admin', 'fleet-admin')),
    subject     TEXT    NOT NULL,
    hash        BLOB    NOT NULL UNIQUE CHECK (length(hash) = 32),
    fleet_admin INTEGER NOT NULL CHECK (fleet_admin IN (0, 1)),
    created_at  INTEGER NOT NULL,
    created_by  TEXT    NOT NULL,
    expires_at  INTEGER,
    revoked_at  INTEGER,
    CHECK ((role = '') = (subject <> '')),
    CHECK (subject = '' OR tenant_id IS NULL)
) STRICT;

CREATE INDEX api_tokens_by_tenant ON api_tokens (tenant_id, name, id) WHERE subject = '';
CREATE INDEX api_tokens_by_subject ON api_tokens (subject) WHERE subject <> '';
CREATE INDEX api_tokens_by_expiry ON api_tokens (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX api_tokens_by_revocation ON api_tokens (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX api_tokens_of_tenant ON api_tokens (tenant_id, id);

-- The groups of a session, which is of no tenant: so is this.
CREATE TABLE api_token_groups (
    token_id TEXT NOT NULL REFERENCES api_tokens (id) ON DELETE CASCADE,
    name     TEXT NOT NULL CHECK (name <> ''),
    PRIMARY KEY (token_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE environments (
    tenant_id         TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id                TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    name              TEXT    NOT NULL CHECK (name <> ''),
    suspended_at      INTEGER,
    suspended_by      TEXT    NOT NULL,
    suspension_reason TEXT    NOT NULL,
    spec              INTEGER NOT NULL CHECK (spec > 0),
    created_at        INTEGER NOT NULL,
    -- push_api_url is set for a push environment: the API server that the agent push_instance applies to, with the
    -- credential push_credential. The checked columns are what that agent found at it.
    push_api_url           TEXT NOT NULL DEFAULT '',
    push_namespaces        TEXT NOT NULL DEFAULT '',
    push_cluster_resources INTEGER NOT NULL DEFAULT 0 CHECK (push_cluster_resources IN (0, 1)),
    push_credential        TEXT NOT NULL DEFAULT '',
    push_instance          TEXT NOT NULL DEFAULT '',
    -- push_moving_from is the agent that has to stop before push_instance is set again.
    push_moving_from       TEXT NOT NULL DEFAULT '',
    checked_revision       TEXT NOT NULL DEFAULT '',
    checked_reason         TEXT NOT NULL DEFAULT '',
    checked_message        TEXT NOT NULL DEFAULT '',
    checked_at             INTEGER,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
) STRICT;

-- Agents are named here, not referred to: an environment keeps the name of one that was deleted, for when it is enrolled again.
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

-- tenant_id owns the environment, grantee_tenant_id may deploy to it; both may read the grant. A
-- grant holds its environment, and falls with the tenant that it was given to.
CREATE TABLE grants (
    tenant_id         TEXT    NOT NULL,
    grantee_tenant_id TEXT    NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    id                TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    environment_id    TEXT    NOT NULL,
    environment_name  TEXT    NOT NULL,
    owner_name        TEXT    NOT NULL,
    grantee_name      TEXT    NOT NULL,
    service_account   TEXT    NOT NULL,
    created_at        INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (grantee_tenant_id, id),
    UNIQUE (tenant_id, grantee_tenant_id, id),
    UNIQUE (environment_id, grantee_tenant_id),
    CHECK (grantee_tenant_id <> tenant_id),
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE RESTRICT
) STRICT;

CREATE INDEX grants_given ON grants (tenant_id, environment_name, grantee_name);
CREATE INDEX grants_received ON grants (grantee_tenant_id, environment_name, owner_name);

CREATE TABLE grant_namespaces (
    tenant_id         TEXT NOT NULL,
    grantee_tenant_id TEXT NOT NULL,
    grant_id          TEXT NOT NULL,
    namespace         TEXT NOT NULL CHECK (namespace <> ''),
    PRIMARY KEY (grant_id, namespace),
    FOREIGN KEY (tenant_id, grantee_tenant_id, grant_id) REFERENCES grants (tenant_id, grantee_tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE grant_kinds (
    tenant_id         TEXT NOT NULL,
    grantee_tenant_id TEXT NOT NULL,
    grant_id          TEXT NOT NULL,
    kind              TEXT NOT NULL CHECK (kind <> ''),
    PRIMARY KEY (grant_id, kind),
    FOREIGN KEY (tenant_id, grantee_tenant_id, grant_id) REFERENCES grants (tenant_id, grantee_tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- Who may reach the API servers of clusters through the tunnels of agents. all_agents is explicit: a rule whose agents and
-- environments were deleted covers no agent.
CREATE TABLE access_rules (
    tenant_id  TEXT NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    id         TEXT NOT NULL UNIQUE CHECK (id <> ''),
    name       TEXT NOT NULL CHECK (name <> ''),
    all_agents INTEGER NOT NULL CHECK (all_agents IN (0, 1)),
    read_only  INTEGER NOT NULL CHECK (read_only IN (0, 1)),
    spec       INTEGER NOT NULL CHECK (spec > 0),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
) STRICT;

CREATE TABLE access_rule_subjects (
    tenant_id TEXT NOT NULL,
    rule_id   TEXT NOT NULL,
    kind      TEXT NOT NULL CHECK (kind IN ('token', 'person', 'group')),
    name      TEXT NOT NULL CHECK (name <> ''),
    PRIMARY KEY (tenant_id, rule_id, kind, name),
    FOREIGN KEY (tenant_id, rule_id) REFERENCES access_rules (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX access_rule_subjects_by_name ON access_rule_subjects (tenant_id, kind, name, rule_id);
CREATE INDEX access_rule_subjects_people ON access_rule_subjects (name) WHERE kind = 'person';

CREATE TABLE access_rule_agents (
    tenant_id TEXT NOT NULL,
    rule_id   TEXT NOT NULL,
    agent_id  TEXT NOT NULL,
    PRIMARY KEY (tenant_id, rule_id, agent_id),
    FOREIGN KEY (tenant_id, rule_id) REFERENCES access_rules (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX access_rule_agents_by_agent ON access_rule_agents (tenant_id, agent_id);

CREATE TABLE access_rule_environments (
    tenant_id      TEXT NOT NULL,
    rule_id        TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    PRIMARY KEY (tenant_id, rule_id, environment_id),
    FOREIGN KEY (tenant_id, rule_id) REFERENCES access_rules (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX access_rule_environments_by_environment ON access_rule_environments (tenant_id, environment_id);

CREATE TABLE credentials (
    tenant_id     TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id            TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    name          TEXT    NOT NULL CHECK (name <> ''),
    kind          TEXT    NOT NULL CHECK (kind IN ('https', 'ssh', 'kubernetes')),
    username      TEXT    NOT NULL,
    known_hosts   TEXT    NOT NULL,
    sealed_key_id TEXT    NOT NULL,
    sealed_key    BLOB    NOT NULL,
    sealed_data   BLOB    NOT NULL,
    spec          INTEGER NOT NULL CHECK (spec > 0),
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
) STRICT;

CREATE INDEX credentials_by_key ON credentials (sealed_key_id, id);

CREATE TABLE repositories (
    tenant_id     TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id            TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    url           TEXT    NOT NULL CHECK (url <> ''),
    credential_id TEXT    CHECK (credential_id <> ''),
    submodules    INTEGER NOT NULL CHECK (submodules IN (0, 1)),
    signers       TEXT    NOT NULL,
    spec          INTEGER NOT NULL CHECK (spec > 0),
    created_at    INTEGER NOT NULL,
    checked_at    INTEGER,
    error         TEXT    NOT NULL,
    error_reason  TEXT    NOT NULL DEFAULT '',
    state_since   INTEGER,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, url),
    FOREIGN KEY (tenant_id, credential_id) REFERENCES credentials (tenant_id, id) ON DELETE RESTRICT
) STRICT;

CREATE INDEX repositories_by_credential ON repositories (tenant_id, credential_id, url);

-- Up to which commit the deployments of a revision were evaluated, but for some: one row for all of them.
CREATE TABLE repository_refs (
    tenant_id          TEXT NOT NULL,
    repository_id      TEXT NOT NULL,
    revision           TEXT NOT NULL,
    commit_hash        TEXT NOT NULL,
    except_deployments TEXT NOT NULL,
    PRIMARY KEY (tenant_id, repository_id, revision),
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repositories (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- What a search looks up: every word of the URL from each of its letters on, in lower case, so that
-- any part of a word is the beginning of some suffix. It is an index, kept by hand: a foreign key
-- would need another one, as large as this.
CREATE TABLE repository_words (
    tenant_id     TEXT NOT NULL,
    suffix        TEXT NOT NULL CHECK (suffix <> ''),
    repository_id TEXT NOT NULL,
    PRIMARY KEY (tenant_id, suffix, repository_id)
) STRICT, WITHOUT ROWID;

-- Where the configuration of an agent is in Git, and what became of it when it was last read.
CREATE TABLE agent_configs (
    tenant_id     TEXT    NOT NULL,
    agent_id      TEXT    NOT NULL,
    repository_id TEXT    NOT NULL,
    spec          INTEGER NOT NULL CHECK (spec > 0),
    created_at    INTEGER NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('', 'Applied', 'Absent', 'Invalid', 'Refused')),
    file          TEXT    NOT NULL,
    commit_hash   TEXT    NOT NULL,
    live_commit   TEXT    NOT NULL,
    read_at       INTEGER,
    more          INTEGER NOT NULL CHECK (more >= 0),
    declares      INTEGER NOT NULL CHECK (declares >= 0),
    PRIMARY KEY (tenant_id, agent_id),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repositories (tenant_id, id) ON DELETE RESTRICT
) STRICT, WITHOUT ROWID;

CREATE INDEX agent_configs_by_repository ON agent_configs (tenant_id, repository_id);

-- line is 0 where there is none; field is '' for the whole file.
CREATE TABLE agent_config_findings (
    tenant_id TEXT    NOT NULL,
    agent_id  TEXT    NOT NULL,
    notice    INTEGER NOT NULL CHECK (notice IN (0, 1)),
    position  INTEGER NOT NULL CHECK (position >= 0),
    field     TEXT    NOT NULL,
    line      INTEGER NOT NULL CHECK (line >= 0),
    message   TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, agent_id, notice, position),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agent_configs (tenant_id, agent_id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- What files of GitLab's name and do not say where it is.
CREATE TABLE gitlab_projects (
    tenant_id TEXT    NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    project   TEXT    NOT NULL CHECK (project <> ''),
    url       TEXT    NOT NULL CHECK (url <> ''),
    PRIMARY KEY (tenant_id, project)
) STRICT, WITHOUT ROWID;

-- content comes last: a row is read up to the last column asked for, and the others are small.
CREATE TABLE bundles (
    tenant_id  TEXT    NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    digest     TEXT    NOT NULL CHECK (digest <> ''),
    size       INTEGER NOT NULL CHECK (size >= 0),
    objects    INTEGER NOT NULL CHECK (objects >= 0),
    created_at INTEGER NOT NULL,
    content    BLOB    NOT NULL,
    PRIMARY KEY (tenant_id, digest)
) STRICT;

CREATE INDEX bundles_by_age ON bundles (tenant_id, created_at);

-- Repositories, environments and bundles in use cannot be deleted below a deployment.
-- environment_name is "owner/name" where the environment is another tenant's. last_run and
-- last_revision are the numbers given so far: they outlive the rows that had them.
CREATE TABLE deployments (
    tenant_id           TEXT    NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id                  TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    name                TEXT    NOT NULL CHECK (name <> ''),
    repository_id       TEXT    NOT NULL,
    path                TEXT    NOT NULL,
    revision            TEXT    NOT NULL,
    kind                TEXT    NOT NULL,
    helm_release        TEXT    NOT NULL,
    helm_values_files   TEXT    NOT NULL,
    helm_values         TEXT    NOT NULL,
    helm_skip_crds      INTEGER NOT NULL CHECK (helm_skip_crds IN (0, 1)),
    helm_set            TEXT    NOT NULL,
    environment_tenant  TEXT    NOT NULL,
    environment_id      TEXT    NOT NULL,
    environment_name    TEXT    NOT NULL,
    namespace           TEXT    NOT NULL,
    prune               INTEGER NOT NULL CHECK (prune IN (0, 1)),
    adopt               INTEGER NOT NULL CHECK (adopt IN (0, 1)),
    allow_empty         INTEGER NOT NULL CHECK (allow_empty IN (0, 1)),
    manual              INTEGER NOT NULL CHECK (manual IN (0, 1)),
    prune_on_detach     INTEGER NOT NULL CHECK (prune_on_detach IN (0, 1)),
    force_conflicts     INTEGER NOT NULL CHECK (force_conflicts IN (0, 1)),
    replace_objects     INTEGER NOT NULL CHECK (replace_objects IN (0, 1)),
    dry_run             INTEGER NOT NULL CHECK (dry_run IN (0, 1)),
    drift               TEXT    NOT NULL,
    ignore_fields       TEXT    NOT NULL,
    service_account     TEXT    NOT NULL,
    propagation         TEXT    NOT NULL,
    prune_timeout       INTEGER NOT NULL,
    ready_timeout       INTEGER NOT NULL,
    prune_limit_objects INTEGER NOT NULL,
    prune_limit_percent INTEGER NOT NULL,
    create_namespace    INTEGER NOT NULL CHECK (create_namespace IN (0, 1)),
    suspended_at        INTEGER,
    suspended_by        TEXT    NOT NULL,
    suspension_reason   TEXT    NOT NULL,
    pin_revision        INTEGER NOT NULL CHECK (pin_revision >= 0),
    pin_commit          TEXT    NOT NULL,
    pinned_at           INTEGER,
    pinned_by           TEXT    NOT NULL,
    pin_source          INTEGER NOT NULL CHECK (pin_source >= 0),
    pin_terminated_run  INTEGER NOT NULL DEFAULT 0 CHECK (pin_terminated_run >= 0),
    spec                INTEGER NOT NULL CHECK (spec > 0),
    source_revision     INTEGER NOT NULL CHECK (source_revision > 0),
    pending_spec        INTEGER NOT NULL DEFAULT 0 CHECK (pending_spec >= 0),
    created_at          INTEGER NOT NULL,
    deleted_at          INTEGER,
    rendered_commit     TEXT    NOT NULL,
    rendered_key        TEXT    NOT NULL,
    rendered_digest     TEXT    CHECK (rendered_digest <> ''),
    rendered_at         INTEGER,
    rendered_reads      TEXT    NOT NULL,
    rendered_volatile   INTEGER NOT NULL CHECK (rendered_volatile IN (0, 1)),
    detected            TEXT    NOT NULL,
    source_error        TEXT    NOT NULL,
    source_reason       TEXT    NOT NULL,
    source_at           INTEGER,
    last_run            INTEGER NOT NULL DEFAULT 0 CHECK (last_run >= 0),
    last_revision       INTEGER NOT NULL DEFAULT 0 CHECK (last_revision >= 0),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repositories (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (environment_tenant, environment_id) REFERENCES environments (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (tenant_id, rendered_digest) REFERENCES bundles (tenant_id, digest) ON DELETE RESTRICT
) STRICT;

CREATE UNIQUE INDEX deployments_by_live_name ON deployments (tenant_id, name) WHERE deleted_at IS NULL;
CREATE INDEX deployments_by_name ON deployments (tenant_id, name, id);
CREATE INDEX deployments_by_repository ON deployments (tenant_id, repository_id, name, id);
CREATE INDEX deployments_by_environment ON deployments (environment_id, tenant_id, name, id);
CREATE INDEX deployments_by_digest ON deployments (tenant_id, rendered_digest);
CREATE INDEX deployments_by_commit ON deployments (tenant_id, rendered_commit, name, id);
CREATE INDEX deployments_in_error ON deployments (tenant_id, name, id) WHERE source_error <> '';

-- Specs that were asked for and whose source is not rendered yet: at most one for each deployment, whose row
-- is the spec in force. labels, globs and variables are JSON: they are only ever read whole.
CREATE TABLE pending_specs (
    tenant_id           TEXT    NOT NULL,
    deployment_id       TEXT    NOT NULL,
    deployment_name     TEXT    NOT NULL,
    spec                INTEGER NOT NULL CHECK (spec > 0),
    repository_id       TEXT    NOT NULL,
    path                TEXT    NOT NULL,
    revision            TEXT    NOT NULL,
    kind                TEXT    NOT NULL,
    helm_release        TEXT    NOT NULL,
    helm_values_files   TEXT    NOT NULL,
    helm_values         TEXT    NOT NULL,
    helm_skip_crds      INTEGER NOT NULL CHECK (helm_skip_crds IN (0, 1)),
    environment_tenant  TEXT    NOT NULL,
    environment_id      TEXT    NOT NULL,
    environment_name    TEXT    NOT NULL,
    namespace           TEXT    NOT NULL,
    prune               INTEGER NOT NULL CHECK (prune IN (0, 1)),
    adopt               INTEGER NOT NULL CHECK (adopt IN (0, 1)),
    allow_empty         INTEGER NOT NULL CHECK (allow_empty IN (0, 1)),
    manual              INTEGER NOT NULL CHECK (manual IN (0, 1)),
    prune_on_detach     INTEGER NOT NULL CHECK (prune_on_detach IN (0, 1)),
    force_conflicts     INTEGER NOT NULL CHECK (force_conflicts IN (0, 1)),
    replace_objects     INTEGER NOT NULL CHECK (replace_objects IN (0, 1)),
    dry_run             INTEGER NOT NULL CHECK (dry_run IN (0, 1)),
    drift               TEXT    NOT NULL,
    ignore_fields       TEXT    NOT NULL,
    service_account     TEXT    NOT NULL,
    propagation         TEXT    NOT NULL,
    prune_timeout       INTEGER NOT NULL,
    ready_timeout       INTEGER NOT NULL,
    prune_limit_objects INTEGER NOT NULL,
    prune_limit_percent INTEGER NOT NULL,
    create_namespace    INTEGER NOT NULL CHECK (create_namespace IN (0, 1)),
    helm_set            TEXT    NOT NULL,
    labels              TEXT    NOT NULL,
    globs               TEXT    NOT NULL,
    variables           TEXT    NOT NULL,
    asked_by            TEXT    NOT NULL,
    edited_at           INTEGER,
    reason              TEXT    NOT NULL,
    problem             TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, deployment_id),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repositories (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (environment_tenant, environment_id) REFERENCES environments (tenant_id, id) ON DELETE RESTRICT
) STRICT;

CREATE INDEX pending_specs_by_repository ON pending_specs (tenant_id, repository_id, deployment_id);
CREATE INDEX pending_specs_by_environment ON pending_specs (environment_id, tenant_id, deployment_id);
CREATE INDEX pending_specs_in_error ON pending_specs (tenant_id, deployment_name, deployment_id) WHERE problem <> '';

CREATE TABLE deployment_labels (
    tenant_id       TEXT NOT NULL,
    deployment_id   TEXT NOT NULL,
    key             TEXT NOT NULL CHECK (key <> ''),
    value           TEXT NOT NULL,
    deployment_name TEXT NOT NULL,
    PRIMARY KEY (tenant_id, deployment_id, key),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX deployment_labels_by_value ON deployment_labels (tenant_id, key, value, deployment_name, deployment_id);

CREATE TABLE deployment_globs (
    tenant_id     TEXT    NOT NULL,
    deployment_id TEXT    NOT NULL,
    position      INTEGER NOT NULL CHECK (position >= 0),
    glob          TEXT    NOT NULL CHECK (glob <> ''),
    PRIMARY KEY (tenant_id, deployment_id, position),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE TABLE deployment_variables (
    tenant_id     TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    name          TEXT NOT NULL CHECK (name <> ''),
    value         TEXT NOT NULL,
    PRIMARY KEY (tenant_id, deployment_id, name),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- As repository_words, of the name and the path.
CREATE TABLE deployment_words (
    tenant_id     TEXT NOT NULL,
    suffix        TEXT NOT NULL CHECK (suffix <> ''),
    deployment_id TEXT NOT NULL,
    PRIMARY KEY (tenant_id, suffix, deployment_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE deployment_variants (
    tenant_id         TEXT    NOT NULL,
    deployment_id     TEXT    NOT NULL,
    name              TEXT    NOT NULL CHECK (name <> ''),
    rendered_commit   TEXT    NOT NULL,
    rendered_key      TEXT    NOT NULL,
    rendered_digest   TEXT    CHECK (rendered_digest <> ''),
    rendered_at       INTEGER,
    rendered_reads    TEXT    NOT NULL,
    rendered_volatile INTEGER NOT NULL CHECK (rendered_volatile IN (0, 1)),
    error             TEXT    NOT NULL,
    error_reason      TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, deployment_id, name),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, rendered_digest) REFERENCES bundles (tenant_id, digest) ON DELETE RESTRICT
) STRICT, WITHOUT ROWID;

CREATE INDEX deployment_variants_in_error ON deployment_variants (tenant_id, error_reason, deployment_id) WHERE error <> '';
CREATE INDEX deployment_variants_by_digest ON deployment_variants (tenant_id, rendered_digest);

-- Deployments that a file in Git declares, or did. The agent is named, not referred to: what it had
-- outlives it.
CREATE TABLE declarations (
    tenant_id       TEXT    NOT NULL,
    deployment_id   TEXT    NOT NULL,
    agent_name      TEXT    NOT NULL CHECK (agent_name <> ''),
    name            TEXT    NOT NULL CHECK (name <> ''),
    repo_url        TEXT    NOT NULL,
    file            TEXT    NOT NULL,
    prune_on_remove INTEGER NOT NULL CHECK (prune_on_remove IN (0, 1)),
    released_at     INTEGER,
    PRIMARY KEY (tenant_id, deployment_id),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX declarations_by_agent ON declarations (tenant_id, agent_name, name, deployment_id);

CREATE TABLE revisions (
    tenant_id     TEXT    NOT NULL,
    deployment_id TEXT    NOT NULL,
    seq           INTEGER NOT NULL CHECK (seq > 0),
    commit_hash   TEXT    NOT NULL,
    rendered_at   INTEGER,
    PRIMARY KEY (tenant_id, deployment_id, seq),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- variant is '' for a deployment that has none.
CREATE TABLE revision_bundles (
    tenant_id     TEXT    NOT NULL,
    deployment_id TEXT    NOT NULL,
    seq           INTEGER NOT NULL,
    variant       TEXT    NOT NULL,
    digest        TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, deployment_id, seq, variant),
    FOREIGN KEY (tenant_id, deployment_id, seq) REFERENCES revisions (tenant_id, deployment_id, seq) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, digest) REFERENCES bundles (tenant_id, digest) ON DELETE RESTRICT
) STRICT, WITHOUT ROWID;

CREATE INDEX revision_bundles_by_digest ON revision_bundles (tenant_id, digest);

-- Targets outlive their agent, whose name they keep, and hold their deployment: its tombstones have
-- to arrive first. tenant_id is the deployment's. observed_digest is what an agent says and so
-- refers to nothing.
--
-- newest_digest is a copy of what the deployment, or the target's variant of it, has rendered last.
-- The four generated columns are what users read and filter by: read_sync, read_health and read_reason as
-- fleet.Target.ViewAt has them for an agent that is connected, and waiting when something newer was
-- rendered than was sent.
CREATE TABLE targets (
    tenant_id                   TEXT    NOT NULL,
    id                          TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    deployment_id               TEXT    NOT NULL,
    deployment_name             TEXT    NOT NULL,
    agent_tenant                TEXT    NOT NULL,
    agent_id                    TEXT    REFERENCES agents (id) ON DELETE SET NULL,
    agent_name                  TEXT    NOT NULL,
    grant_id                    TEXT    CHECK (grant_id <> ''),
    variant                     TEXT    NOT NULL,
    variant_error               TEXT    NOT NULL,
    -- The kind filter of the agent, and which object of the newest state it refuses.
    included_kinds              TEXT    NOT NULL,
    excluded_kinds              TEXT    NOT NULL,
    kind_error                  TEXT    NOT NULL,
    detached_at                 INTEGER,
    detached_why                TEXT    NOT NULL,
    left_in                     TEXT    NOT NULL,
    newest_digest               TEXT,
    desired_epoch               INTEGER NOT NULL,
    desired_generation          INTEGER NOT NULL,
    desired_digest              TEXT    CHECK (desired_digest <> ''),
    desired_commit              TEXT    NOT NULL,
    desired_namespace           TEXT    NOT NULL,
    desired_prune               INTEGER NOT NULL CHECK (desired_prune IN (0, 1)),
    desired_adopt               INTEGER NOT NULL CHECK (desired_adopt IN (0, 1)),
    desired_allow_empty         INTEGER NOT NULL CHECK (desired_allow_empty IN (0, 1)),
    desired_manual              INTEGER NOT NULL CHECK (desired_manual IN (0, 1)),
    desired_prune_on_detach     INTEGER NOT NULL CHECK (desired_prune_on_detach IN (0, 1)),
    desired_force_conflicts     INTEGER NOT NULL CHECK (desired_force_conflicts IN (0, 1)),
    desired_replace_objects     INTEGER NOT NULL CHECK (desired_replace_objects IN (0, 1)),
    desired_dry_run             INTEGER NOT NULL CHECK (desired_dry_run IN (0, 1)),
    desired_drift               TEXT    NOT NULL,
    desired_ignore_fields       TEXT    NOT NULL,
    desired_service_account     TEXT    NOT NULL,
    desired_propagation         TEXT    NOT NULL,
    desired_prune_timeout       INTEGER NOT NULL,
    desired_ready_timeout       INTEGER NOT NULL,
    desired_prune_limit_objects INTEGER NOT NULL,
    desired_prune_limit_percent INTEGER NOT NULL,
    desired_create_namespace    INTEGER NOT NULL CHECK (desired_create_namespace IN (0, 1)),
    desired_hold_prune          INTEGER NOT NULL CHECK (desired_hold_prune IN (0, 1)),
    desired_consent             INTEGER NOT NULL CHECK (desired_consent IN (0, 1)),
    desired_confirmed           TEXT    NOT NULL,
    desired_hand_overs          TEXT    NOT NULL,
    desired_tombstone           INTEGER NOT NULL CHECK (desired_tombstone IN (0, 1)),
    desired_hold_protected      INTEGER NOT NULL CHECK (desired_hold_protected IN (0, 1)),
    desired_detached            INTEGER NOT NULL CHECK (desired_detached IN (0, 1)),
    desired_source              INTEGER NOT NULL,
    observed_epoch              INTEGER NOT NULL,
    observed_generation         INTEGER NOT NULL,
    observed_digest             TEXT    NOT NULL,
    observed_sync               TEXT    NOT NULL,
    observed_health             TEXT    NOT NULL,
    observed_as_of              INTEGER,
    observed_message            TEXT    NOT NULL,
    observed_reason             TEXT    NOT NULL,
    observed_sync_at            INTEGER,
    observed_health_at          INTEGER,
    read_sync TEXT NOT NULL GENERATED ALWAYS AS (CASE
        WHEN observed_sync = '' THEN 'Pending'
        WHEN observed_sync <> 'Synced' THEN observed_sync
        WHEN observed_epoch <> desired_epoch OR observed_generation <> desired_generation THEN 'Pending'
        ELSE 'Synced' END) STORED,
    read_health TEXT NOT NULL GENERATED ALWAYS AS (CASE
        WHEN observed_sync = '' THEN 'Unknown'
        ELSE observed_health END) STORED,
    read_reason TEXT NOT NULL GENERATED ALWAYS AS (CASE
        WHEN observed_sync = '' THEN 'NotReported'
        WHEN observed_sync = 'Synced' AND (observed_epoch <> desired_epoch OR observed_generation <> desired_generation) THEN 'Applying'
        WHEN observed_reason <> '' THEN observed_reason
        WHEN observed_sync = 'Synced' THEN 'Synced'
        WHEN observed_sync = 'Failed' THEN 'ObjectsFailed'
        WHEN observed_sync = 'Deleted' THEN 'Deleted'
        WHEN observed_sync = 'Detached' THEN 'Detached'
        WHEN observed_sync = 'Rewound' THEN 'Rewound'
        WHEN observed_sync = 'OutOfSync' THEN 'Drifted'
        WHEN observed_sync = 'Held' THEN 'PruneHeld'
        ELSE 'Applying' END) STORED,
    waiting INTEGER NOT NULL GENERATED ALWAYS AS (
        newest_digest IS NOT NULL AND desired_digest IS DISTINCT FROM newest_digest
        AND NOT desired_tombstone AND NOT desired_detached AND detached_at IS NULL) STORED,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, deployment_id, agent_id),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (tenant_id, grant_id) REFERENCES grants (grantee_tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (tenant_id, desired_digest) REFERENCES bundles (tenant_id, digest) ON DELETE RESTRICT
) STRICT;

CREATE INDEX targets_by_deployment ON targets (tenant_id, deployment_id, agent_name, id);
CREATE INDEX targets_by_agent ON targets (agent_id, tenant_id, deployment_name, deployment_id);
CREATE INDEX targets_by_agent_tenant ON targets (tenant_id, agent_tenant);
CREATE INDEX targets_by_digest ON targets (tenant_id, desired_digest);
CREATE INDEX targets_by_grant ON targets (grant_id) WHERE grant_id IS NOT NULL;
CREATE INDEX targets_by_hand_over ON targets (tenant_id, id) WHERE desired_hand_overs <> '';
CREATE INDEX targets_by_sync ON targets (tenant_id, read_sync, deployment_name, deployment_id);
CREATE INDEX targets_by_reason ON targets (tenant_id, read_reason, deployment_name, deployment_id) WHERE read_reason NOT IN ('Synced', 'Applying', 'NotReported');
CREATE INDEX targets_by_health ON targets (tenant_id, read_health, deployment_name, deployment_id);
CREATE INDEX targets_without_variant ON targets (tenant_id, deployment_name, deployment_id) WHERE variant_error <> '';
CREATE INDEX targets_with_refused_kinds ON targets (tenant_id, deployment_name, deployment_id) WHERE kind_error <> '';
CREATE INDEX targets_waiting ON targets (tenant_id, deployment_name, deployment_id) WHERE waiting;
CREATE INDEX targets_without_agent ON targets (tenant_id, deployment_name, deployment_id) WHERE agent_id IS NULL;
CREATE INDEX targets_left_behind ON targets (agent_tenant, agent_name) WHERE agent_id IS NULL;
CREATE INDEX targets_unproven ON targets (agent_id) WHERE left_in <> '';

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
    reason      TEXT NOT NULL,
    PRIMARY KEY (tenant_id, target_id, api_group, kind, namespace, name),
    FOREIGN KEY (tenant_id, target_id) REFERENCES targets (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX target_objects_held ON target_objects (tenant_id, target_id, kind, api_group, namespace, name) WHERE sync = 'Held';

-- operation_id refers to nothing: operations are forgotten sooner than runs.
CREATE TABLE sync_runs (
    tenant_id     TEXT    NOT NULL,
    id            TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    deployment_id TEXT    NOT NULL,
    seq           INTEGER NOT NULL CHECK (seq > 0),
    kind          TEXT    NOT NULL CHECK (kind IN ('sync', 'rollback')),
    revision      TEXT    NOT NULL,
    kept          INTEGER NOT NULL CHECK (kept >= 0),
    phase         TEXT    NOT NULL CHECK (phase IN ('Pending', 'Running', 'Succeeded', 'Failed', 'Terminated')),
    reason        TEXT    NOT NULL,
    message       TEXT    NOT NULL,
    commit_hash   TEXT    NOT NULL,
    created_by    TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    started_at    INTEGER,
    finished_at   INTEGER,
    operation_id  TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, deployment_id, seq),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
) STRICT;

CREATE INDEX sync_runs_open ON sync_runs (tenant_id, deployment_id, seq) WHERE phase IN ('Pending', 'Running');

-- A run does not wait for a target that is gone.
CREATE TABLE run_targets (
    tenant_id  TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    target_id  TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    done       INTEGER NOT NULL CHECK (done IN (0, 1)),
    failed     INTEGER NOT NULL CHECK (failed IN (0, 1)),
    reason     TEXT    NOT NULL,
    message    TEXT    NOT NULL,
    PRIMARY KEY (tenant_id, run_id, target_id),
    FOREIGN KEY (tenant_id, run_id) REFERENCES sync_runs (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, target_id) REFERENCES targets (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX run_targets_by_target ON run_targets (tenant_id, target_id, done);

-- step increases with every write: two servers never take the same step.
CREATE TABLE engine_upgrades (
    tenant_id   TEXT    NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    id          TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    name        TEXT    NOT NULL CHECK (name <> ''),
    revision    TEXT    NOT NULL,
    timeout     INTEGER NOT NULL CHECK (timeout > 0),
    phase       TEXT    NOT NULL CHECK (phase IN ('Running', 'Succeeded', 'Halted', 'RollbackFailed')),
    reason      TEXT    NOT NULL,
    message     TEXT    NOT NULL,
    halt        TEXT    NOT NULL CHECK (halt IN ('', 'AfterInstance', 'RollBack')),
    halted_by   TEXT    NOT NULL,
    created_by  TEXT    NOT NULL,
    step        INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    finished_at INTEGER,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
) STRICT;

CREATE INDEX engine_upgrades_open ON engine_upgrades (tenant_id, name) WHERE phase = 'Running';

-- Agents and deployments are named, not referred to: what is done stays readable after their deletion.
CREATE TABLE engine_upgrade_instances (
    tenant_id         TEXT    NOT NULL,
    upgrade_id        TEXT    NOT NULL,
    place             INTEGER NOT NULL,
    agent_id          TEXT    NOT NULL,
    agent             TEXT    NOT NULL,
    deployment_id     TEXT    NOT NULL,
    deployment        TEXT    NOT NULL,
    canary_id         TEXT    NOT NULL,
    canary            TEXT    NOT NULL,
    phase             TEXT    NOT NULL CHECK (phase IN ('Pending', 'Installing', 'Checking', 'Upgraded', 'RollingBack', 'CheckingRollback', 'RolledBack', 'RollbackFailed')),
    reason            TEXT    NOT NULL,
    message           TEXT    NOT NULL,
    before_revision   INTEGER NOT NULL,
    before_commit     TEXT    NOT NULL,
    commit_hash       TEXT    NOT NULL,
    run_id            TEXT    NOT NULL,
    canary_epoch      INTEGER NOT NULL,
    canary_generation INTEGER NOT NULL,
    deadline          INTEGER,
    started_at        INTEGER,
    finished_at       INTEGER,
    PRIMARY KEY (tenant_id, upgrade_id, place),
    FOREIGN KEY (tenant_id, upgrade_id) REFERENCES engine_upgrades (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX engine_upgrade_instances_of ON engine_upgrade_instances (tenant_id, deployment_id);

-- Kubernetes resources that declare resources here. resource_id is repeated in the column of its kind, so that a row is
-- deleted with its resource.
CREATE TABLE owners (
    tenant_id      TEXT NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    resource_kind  TEXT NOT NULL CHECK (resource_kind IN ('tenant', 'agent', 'environment', 'credential', 'deployment', 'run')),
    resource_id    TEXT NOT NULL CHECK (resource_id <> ''),
    kind           TEXT NOT NULL CHECK (kind <> ''),
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL CHECK (name <> ''),
    uid            TEXT NOT NULL CHECK (uid <> ''),
    generation     INTEGER NOT NULL,
    created        INTEGER NOT NULL,
    missing_since  INTEGER,
    agent_id       TEXT,
    environment_id TEXT,
    credential_id  TEXT,
    deployment_id  TEXT,
    run_id         TEXT,
    PRIMARY KEY (tenant_id, resource_kind, resource_id),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, credential_id) REFERENCES credentials (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, run_id) REFERENCES sync_runs (tenant_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

CREATE INDEX owners_by_kind ON owners (resource_kind, tenant_id, resource_id);
CREATE INDEX owners_by_name ON owners (tenant_id, kind, name);
CREATE UNIQUE INDEX owners_of_tenants ON owners (uid) WHERE resource_kind = 'tenant';
CREATE INDEX owners_of_agents ON owners (tenant_id, agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX owners_of_environments ON owners (tenant_id, environment_id) WHERE environment_id IS NOT NULL;
CREATE INDEX owners_of_credentials ON owners (tenant_id, credential_id) WHERE credential_id IS NOT NULL;
CREATE INDEX owners_of_deployments ON owners (tenant_id, deployment_id) WHERE deployment_id IS NOT NULL;
CREATE INDEX owners_of_runs ON owners (tenant_id, run_id) WHERE run_id IS NOT NULL;

CREATE TABLE operations (
    tenant_id   TEXT    NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    id          TEXT    NOT NULL UNIQUE CHECK (id <> ''),
    action      TEXT    NOT NULL CHECK (action <> ''),
    kind        TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    resource_id TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('Waiting', 'InProgress', 'Completed', 'Failed')),
    message     TEXT    NOT NULL,
    created_by  TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    finished_at INTEGER,
    PRIMARY KEY (tenant_id, id)
) STRICT;

CREATE INDEX operations_by_age ON operations (tenant_id, created_at, id);
CREATE INDEX operations_by_kind ON operations (tenant_id, kind, name, created_at, id);
CREATE INDEX operations_by_state ON operations (tenant_id, state, created_at, id);
CREATE INDEX operations_by_resource ON operations (tenant_id, resource_id, created_at, id);
CREATE INDEX operations_finished ON operations (finished_at) WHERE finished_at IS NOT NULL;

-- AUTOINCREMENT: a number that was seen is never given again, even when the newest rows are gone.
-- tenant_id is NULL for what concerns the whole fleet.
CREATE TABLE audit_events (
    seq         INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant_id   TEXT    REFERENCES tenants (id) ON DELETE CASCADE,
    at          INTEGER NOT NULL,
    actor       TEXT    NOT NULL,
    component   TEXT    NOT NULL,
    action      TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    resource_id TEXT    NOT NULL,
    request     TEXT    NOT NULL,
    address     TEXT    NOT NULL,
    detail      TEXT    NOT NULL
) STRICT;

CREATE INDEX audit_events_by_tenant ON audit_events (tenant_id, seq);
CREATE INDEX audit_events_by_tenant_actor ON audit_events (tenant_id, actor, seq);
CREATE INDEX audit_events_by_tenant_action ON audit_events (tenant_id, action, seq);
CREATE INDEX audit_events_by_tenant_kind ON audit_events (tenant_id, kind, name, seq);
CREATE INDEX audit_events_by_actor ON audit_events (actor, seq);
CREATE INDEX audit_events_by_action ON audit_events (action, seq);
CREATE INDEX audit_events_by_kind ON audit_events (kind, name, seq);
CREATE INDEX audit_events_by_time ON audit_events (at);

CREATE TABLE events (
    seq        INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant_id  TEXT    NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
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

-- The outbox refers to nothing: its records outlive the rows that they are about. tenant_id is ''
-- for those about the whole fleet.
CREATE TABLE changes (
    seq           INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant_id     TEXT    NOT NULL,
    kind          TEXT    NOT NULL,
    id            TEXT    NOT NULL,
    agent_id      TEXT    NOT NULL,
    deployment_id TEXT    NOT NULL,
    reason        TEXT    NOT NULL DEFAULT '',
    ref           TEXT    NOT NULL DEFAULT '',
    at            INTEGER NOT NULL
) STRICT;

CREATE INDEX changes_by_tenant ON changes (tenant_id, seq);

-- Answers by idempotency key. scope is who asked, over all tenants.
CREATE TABLE replies (
    scope    TEXT    NOT NULL,
    key      TEXT    NOT NULL CHECK (key <> ''),
    request  BLOB    NOT NULL,
    status   INTEGER NOT NULL CHECK (status >= 0),
    body     BLOB    NOT NULL,
    location TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (scope, key)
) STRICT;

CREATE INDEX replies_by_age ON replies (at);
