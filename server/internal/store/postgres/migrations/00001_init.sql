-- The tables of the SQLite store with the types of PostgreSQL. Every table below tenants carries
-- tenant_id, also in its foreign keys, so that no row can refer to a row of another tenant, but for
-- what a grant allows: a deployment to an environment, and a target to an agent, of the tenant that
-- granted them. Names of those are copied, since a reader of one tenant cannot join rows of another;
-- names never change.
--
-- Times are unix microseconds, NULL where there is none. Text sorts by its bytes, as in SQLite. Words
-- that agents report (sync, health) have no CHECK: one word from a newer agent must not fail the batch
-- that it arrives in.

-- +goose Up
CREATE TABLE settings (
    one               BIGINT           NOT NULL PRIMARY KEY CHECK (one = 1),
    epoch             BIGINT           NOT NULL CHECK (epoch > 0),
    suspended_at      BIGINT,
    suspended_by      TEXT COLLATE "C" NOT NULL,
    suspension_reason TEXT COLLATE "C" NOT NULL
);

INSERT INTO settings (one, epoch, suspended_by, suspension_reason) VALUES (1, 1, '', '');

CREATE TABLE server_replicas (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (id <> ''),
    address    TEXT COLLATE "C" NOT NULL,
    version    TEXT COLLATE "C" NOT NULL,
    started_at BIGINT           NOT NULL,
    beat_at    BIGINT           NOT NULL
);

-- A quota of 0 is none.
CREATE TABLE tenants (
    id                 TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (id <> ''),
    name               TEXT COLLATE "C" NOT NULL UNIQUE CHECK (name <> ''),
    quota_agents       BIGINT           NOT NULL CHECK (quota_agents >= 0),
    quota_environments BIGINT           NOT NULL CHECK (quota_environments >= 0),
    quota_repositories BIGINT           NOT NULL CHECK (quota_repositories >= 0),
    quota_deployments  BIGINT           NOT NULL CHECK (quota_deployments >= 0),
    quota_targets      BIGINT           NOT NULL CHECK (quota_targets >= 0),
    quota_tokens       BIGINT           NOT NULL CHECK (quota_tokens >= 0),
    suspended_at       BIGINT,
    suspended_by       TEXT COLLATE "C" NOT NULL,
    suspension_reason  TEXT COLLATE "C" NOT NULL,
    created_at         BIGINT           NOT NULL
);

-- A tenant is a wall: what runs somewhere holds it (RESTRICT), and only what is about the tenant
-- itself falls with it (CASCADE).
CREATE TABLE members (
    tenant_id  TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    kind       TEXT COLLATE "C" NOT NULL CHECK (kind IN ('person', 'group')),
    subject    TEXT COLLATE "C" NOT NULL CHECK (subject <> ''),
    role       TEXT COLLATE "C" NOT NULL CHECK (role IN ('viewer', 'deployer', 'admin')),
    created_at BIGINT           NOT NULL,
    PRIMARY KEY (tenant_id, kind, subject)
);

CREATE INDEX members_by_subject ON members (kind, subject, tenant_id);

-- Whom the names of people stand for: issuer and subject are what an identity provider never gives to
-- anybody else. One person may have had several names; a name is never another's.
CREATE TABLE people (
    name         TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (name <> ''),
    issuer       TEXT COLLATE "C" NOT NULL CHECK (issuer <> ''),
    subject      TEXT COLLATE "C" NOT NULL CHECK (subject <> ''),
    display_name TEXT COLLATE "C" NOT NULL,
    created_at   BIGINT           NOT NULL,
    logged_in_at BIGINT           NOT NULL
);

-- What clusters offer to charts, once for all agents of a tenant that report the same.
CREATE TABLE agent_capabilities (
    tenant_id    TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    hash         TEXT COLLATE "C" NOT NULL CHECK (hash <> ''),
    kube_version TEXT COLLATE "C" NOT NULL,
    api_versions TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, hash)
);

-- connected says that the agent has an open connection: it is kept with them, in one transaction,
-- because a listing of thousands cannot ask for each.
CREATE TABLE agents (
    tenant_id    TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id           TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    name         TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    scope        TEXT COLLATE "C" NOT NULL CHECK (scope IN ('cluster', 'namespaced')),
    spec         BIGINT           NOT NULL CHECK (spec > 0),
    connected    BOOLEAN          NOT NULL,
    created_at   BIGINT           NOT NULL,
    capabilities TEXT COLLATE "C",
    uninstalling BOOLEAN          NOT NULL DEFAULT FALSE,
    -- engine_namespace is the namespace of Argo CD in the cluster of the agent; empty if the agent applies by itself.
    engine_namespace TEXT COLLATE "C" NOT NULL DEFAULT '',
    deliver_git_credentials BOOLEAN NOT NULL DEFAULT FALSE,
    -- instance lets push environments be placed on the agent.
    instance BOOLEAN NOT NULL DEFAULT FALSE,
    -- draining moves the push environments of the agent to other ones.
    draining BOOLEAN NOT NULL DEFAULT FALSE,
    -- tunnel lets callers with an access rule reach the API server of the cluster through the agent.
    tunnel BOOLEAN NOT NULL DEFAULT FALSE,
    -- included_kinds and excluded_kinds are lists of rules; the configuration file of the agent declares them if
    -- kinds_from_config is set.
    included_kinds TEXT COLLATE "C" NOT NULL DEFAULT '',
    excluded_kinds TEXT COLLATE "C" NOT NULL DEFAULT '',
    kinds_from_config BOOLEAN NOT NULL DEFAULT FALSE,
    -- applications is the number of Applications of Argo CD that the agent does not manage.
    applications BIGINT NOT NULL DEFAULT 0 CHECK (applications >= 0),
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name),
    FOREIGN KEY (tenant_id, capabilities) REFERENCES agent_capabilities (tenant_id, hash) ON DELETE RESTRICT
);

CREATE INDEX agents_by_presence ON agents (tenant_id, connected, name, id);

CREATE INDEX agents_by_capabilities ON agents (tenant_id, capabilities);

CREATE TABLE agent_labels (
    tenant_id TEXT COLLATE "C" NOT NULL,
    agent_id  TEXT COLLATE "C" NOT NULL,
    key       TEXT COLLATE "C" NOT NULL CHECK (key <> ''),
    value     TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, agent_id, key),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE agent_namespaces (
    tenant_id TEXT COLLATE "C" NOT NULL,
    agent_id  TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL CHECK (namespace <> ''),
    PRIMARY KEY (tenant_id, agent_id, namespace),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
);

-- Applications of Argo CD that the agent lists and does not manage.
CREATE TABLE agent_applications (
    tenant_id TEXT COLLATE "C" NOT NULL,
    agent_id  TEXT COLLATE "C" NOT NULL,
    name      TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    project   TEXT COLLATE "C" NOT NULL,
    repo_url  TEXT COLLATE "C" NOT NULL,
    path      TEXT COLLATE "C" NOT NULL,
    revision  TEXT COLLATE "C" NOT NULL,
    cluster   TEXT COLLATE "C" NOT NULL,
    namespace TEXT COLLATE "C" NOT NULL,
    sync      TEXT COLLATE "C" NOT NULL,
    health    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, agent_id, name),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
);

-- server names a server_replicas row but does not refer to it: what a server held outlives it.
CREATE TABLE connections (
    tenant_id       TEXT COLLATE "C" NOT NULL,
    agent_id        TEXT COLLATE "C" NOT NULL,
    replica         TEXT COLLATE "C" NOT NULL,
    session_id      TEXT COLLATE "C" NOT NULL UNIQUE CHECK (session_id <> ''),
    server          TEXT COLLATE "C" NOT NULL,
    version         TEXT COLLATE "C" NOT NULL,
    kube_version    TEXT COLLATE "C" NOT NULL,
    cluster_uid     TEXT COLLATE "C" NOT NULL,
    engine_namespace TEXT COLLATE "C" NOT NULL,
    remote_addr     TEXT COLLATE "C" NOT NULL,
    standby         BOOLEAN          NOT NULL,
    connected_at    BIGINT           NOT NULL,
    last_seen_at    BIGINT           NOT NULL,
    disconnected_at BIGINT,
    PRIMARY KEY (tenant_id, agent_id, replica),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX connections_by_agent ON connections (agent_id, replica);
CREATE INDEX connections_open ON connections (server, agent_id) WHERE disconnected_at IS NULL;

-- 32 bytes are a SHA-256; a token itself never has that form, so it cannot be stored by mistake.
CREATE TABLE agent_tokens (
    tenant_id  TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    agent_id   TEXT COLLATE "C" NOT NULL,
    hash       BYTEA            NOT NULL UNIQUE CHECK (length(hash) = 32),
    created_at BIGINT           NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    last_used  BIGINT,
    revoked_at BIGINT,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX agent_tokens_by_agent ON agent_tokens (tenant_id, agent_id, created_at, id);

-- tenant_id is NULL for tokens of the fleet and for sessions. A session has a subject and no role
-- of its own; a token has a role and no subject.
CREATE TABLE api_tokens (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (id <> ''),
    tenant_id   TEXT COLLATE "C" REFERENCES tenants (id) ON DELETE CASCADE,
    name        TEXT COLLATE "C" NOT NULL,
    role        TEXT COLLATE "C" NOT NULL CHECK (role IN ('', 'viewer', 'deployer', 'admin', 'fleet-admin')),
    subject     TEXT COLLATE "C" NOT NULL,
    hash        BYTEA            NOT NULL UNIQUE CHECK (length(hash) = 32),
    fleet_admin BOOLEAN          NOT NULL,
    created_at  BIGINT           NOT NULL,
    created_by  TEXT COLLATE "C" NOT NULL,
    expires_at  BIGINT,
    revoked_at  BIGINT,
    CHECK ((role = '') = (subject <> '')),
    CHECK (subject = '' OR tenant_id IS NULL)
);

CREATE INDEX api_tokens_by_tenant ON api_tokens (tenant_id, name, id) WHERE subject = '';
CREATE INDEX api_tokens_by_subject ON api_tokens (subject) WHERE subject <> '';
CREATE INDEX api_tokens_by_expiry ON api_tokens (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX api_tokens_by_revocation ON api_tokens (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX api_tokens_of_tenant ON api_tokens (tenant_id, id);

-- The groups of a session, which is of no tenant: so is this.
CREATE TABLE api_token_groups (
    token_id TEXT COLLATE "C" NOT NULL REFERENCES api_tokens (id) ON DELETE CASCADE,
    name     TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    PRIMARY KEY (token_id, name)
);

CREATE TABLE environments (
    tenant_id         TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id                TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    name              TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    suspended_at      BIGINT,
    suspended_by      TEXT COLLATE "C" NOT NULL,
    suspension_reason TEXT COLLATE "C" NOT NULL,
    spec              BIGINT           NOT NULL CHECK (spec > 0),
    created_at        BIGINT           NOT NULL,
    -- push_api_url is set for a push environment: the API server that the agent push_instance applies to, with the
    -- credential push_credential. The checked columns are what that agent found at it.
    push_api_url           TEXT COLLATE "C" NOT NULL DEFAULT '',
    push_namespaces        TEXT COLLATE "C" NOT NULL DEFAULT '',
    push_cluster_resources BOOLEAN NOT NULL DEFAULT FALSE,
    push_credential        TEXT COLLATE "C" NOT NULL DEFAULT '',
    push_instance          TEXT COLLATE "C" NOT NULL DEFAULT '',
    -- push_moving_from is the agent that has to stop before push_instance is set again.
    push_moving_from       TEXT COLLATE "C" NOT NULL DEFAULT '',
    checked_revision       TEXT COLLATE "C" NOT NULL DEFAULT '',
    checked_reason         TEXT COLLATE "C" NOT NULL DEFAULT '',
    checked_message        TEXT COLLATE "C" NOT NULL DEFAULT '',
    checked_at             BIGINT,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
);

-- Agents are named here, not referred to: an environment keeps the name of one that was deleted, for when it is enrolled again.
CREATE TABLE environment_agents (
    tenant_id      TEXT COLLATE "C" NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    agent_name     TEXT COLLATE "C" NOT NULL CHECK (agent_name <> ''),
    PRIMARY KEY (tenant_id, environment_id, agent_name),
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE environment_match_labels (
    tenant_id      TEXT COLLATE "C" NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    key            TEXT COLLATE "C" NOT NULL CHECK (key <> ''),
    value          TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, environment_id, key),
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE CASCADE
);

-- tenant_id owns the environment, grantee_tenant_id may deploy to it; both may read the grant. A
-- grant holds its environment, and falls with the tenant that it was given to.
CREATE TABLE grants (
    tenant_id         TEXT COLLATE "C" NOT NULL,
    grantee_tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    id                TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    environment_id    TEXT COLLATE "C" NOT NULL,
    environment_name  TEXT COLLATE "C" NOT NULL,
    owner_name        TEXT COLLATE "C" NOT NULL,
    grantee_name      TEXT COLLATE "C" NOT NULL,
    service_account   TEXT COLLATE "C" NOT NULL,
    created_at        BIGINT           NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (grantee_tenant_id, id),
    UNIQUE (tenant_id, grantee_tenant_id, id),
    UNIQUE (environment_id, grantee_tenant_id),
    CHECK (grantee_tenant_id <> tenant_id),
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE RESTRICT
);

CREATE INDEX grants_given ON grants (tenant_id, environment_name, grantee_name);
CREATE INDEX grants_received ON grants (grantee_tenant_id, environment_name, owner_name);

CREATE TABLE grant_namespaces (
    tenant_id         TEXT COLLATE "C" NOT NULL,
    grantee_tenant_id TEXT COLLATE "C" NOT NULL,
    grant_id          TEXT COLLATE "C" NOT NULL,
    namespace         TEXT COLLATE "C" NOT NULL CHECK (namespace <> ''),
    PRIMARY KEY (grant_id, namespace),
    FOREIGN KEY (tenant_id, grantee_tenant_id, grant_id) REFERENCES grants (tenant_id, grantee_tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE grant_kinds (
    tenant_id         TEXT COLLATE "C" NOT NULL,
    grantee_tenant_id TEXT COLLATE "C" NOT NULL,
    grant_id          TEXT COLLATE "C" NOT NULL,
    kind              TEXT COLLATE "C" NOT NULL CHECK (kind <> ''),
    PRIMARY KEY (grant_id, kind),
    FOREIGN KEY (tenant_id, grantee_tenant_id, grant_id) REFERENCES grants (tenant_id, grantee_tenant_id, id) ON DELETE CASCADE
);

-- Who may reach the API servers of clusters through the tunnels of agents. all_agents is explicit: a rule whose agents and
-- environments were deleted covers no agent.
CREATE TABLE access_rules (
    tenant_id  TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    id         TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    name       TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    all_agents BOOLEAN NOT NULL,
    read_only  BOOLEAN NOT NULL,
    spec       BIGINT NOT NULL CHECK (spec > 0),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
);

CREATE TABLE access_rule_subjects (
    tenant_id TEXT COLLATE "C" NOT NULL,
    rule_id   TEXT COLLATE "C" NOT NULL,
    kind      TEXT COLLATE "C" NOT NULL CHECK (kind IN ('token', 'person', 'group')),
    name      TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    PRIMARY KEY (tenant_id, rule_id, kind, name),
    FOREIGN KEY (tenant_id, rule_id) REFERENCES access_rules (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX access_rule_subjects_by_name ON access_rule_subjects (tenant_id, kind, name, rule_id);
CREATE INDEX access_rule_subjects_people ON access_rule_subjects (name) WHERE kind = 'person';

CREATE TABLE access_rule_agents (
    tenant_id TEXT COLLATE "C" NOT NULL,
    rule_id   TEXT COLLATE "C" NOT NULL,
    agent_id  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, rule_id, agent_id),
    FOREIGN KEY (tenant_id, rule_id) REFERENCES access_rules (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX access_rule_agents_by_agent ON access_rule_agents (tenant_id, agent_id);

CREATE TABLE access_rule_environments (
    tenant_id      TEXT COLLATE "C" NOT NULL,
    rule_id        TEXT COLLATE "C" NOT NULL,
    environment_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, rule_id, environment_id),
    FOREIGN KEY (tenant_id, rule_id) REFERENCES access_rules (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX access_rule_environments_by_environment ON access_rule_environments (tenant_id, environment_id);

CREATE TABLE credentials (
    tenant_id     TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id            TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    name          TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    kind          TEXT COLLATE "C" NOT NULL CHECK (kind IN ('https', 'ssh', 'kubernetes')),
    username      TEXT COLLATE "C" NOT NULL,
    known_hosts   TEXT COLLATE "C" NOT NULL,
    sealed_key_id TEXT COLLATE "C" NOT NULL,
    sealed_key    BYTEA            NOT NULL,
    sealed_data   BYTEA            NOT NULL,
    spec          BIGINT           NOT NULL CHECK (spec > 0),
    created_at    BIGINT           NOT NULL,
    updated_at    BIGINT           NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
);

CREATE INDEX credentials_by_key ON credentials (sealed_key_id, id);

CREATE TABLE repositories (
    tenant_id     TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id            TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    url           TEXT COLLATE "C" NOT NULL CHECK (url <> ''),
    credential_id TEXT COLLATE "C" CHECK (credential_id <> ''),
    submodules    BOOLEAN          NOT NULL,
    signers       TEXT COLLATE "C" NOT NULL,
    spec          BIGINT           NOT NULL CHECK (spec > 0),
    created_at    BIGINT           NOT NULL,
    checked_at    BIGINT,
    error         TEXT COLLATE "C" NOT NULL,
    error_reason  TEXT COLLATE "C" NOT NULL DEFAULT '',
    state_since   BIGINT,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, url),
    FOREIGN KEY (tenant_id, credential_id) REFERENCES credentials (tenant_id, id) ON DELETE RESTRICT
);

CREATE INDEX repositories_by_credential ON repositories (tenant_id, credential_id, url);

-- Up to which commit the deployments of a revision were evaluated, but for some: one row for all of them.
CREATE TABLE repository_refs (
    tenant_id          TEXT COLLATE "C" NOT NULL,
    repository_id      TEXT COLLATE "C" NOT NULL,
    revision           TEXT COLLATE "C" NOT NULL,
    commit_hash        TEXT COLLATE "C" NOT NULL,
    except_deployments TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, repository_id, revision),
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repositories (tenant_id, id) ON DELETE CASCADE
);

-- What a search looks up: every word of the URL from each of its letters on, in lower case, so that
-- any part of a word is the beginning of some suffix. It is an index, kept by hand: a foreign key
-- would need another one, as large as this.
CREATE TABLE repository_words (
    tenant_id     TEXT COLLATE "C" NOT NULL,
    suffix        TEXT COLLATE "C" NOT NULL CHECK (suffix <> ''),
    repository_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, suffix, repository_id)
);

-- Where the configuration of an agent is in Git, and what became of it when it was last read.
CREATE TABLE agent_configs (
    tenant_id     TEXT COLLATE "C" NOT NULL,
    agent_id      TEXT COLLATE "C" NOT NULL,
    repository_id TEXT COLLATE "C" NOT NULL,
    spec          BIGINT           NOT NULL CHECK (spec > 0),
    created_at    BIGINT           NOT NULL,
    state         TEXT COLLATE "C" NOT NULL CHECK (state IN ('', 'Applied', 'Absent', 'Invalid', 'Refused')),
    file          TEXT COLLATE "C" NOT NULL,
    commit_hash   TEXT COLLATE "C" NOT NULL,
    live_commit   TEXT COLLATE "C" NOT NULL,
    read_at       BIGINT,
    more          BIGINT           NOT NULL CHECK (more >= 0),
    declares      BIGINT           NOT NULL CHECK (declares >= 0),
    PRIMARY KEY (tenant_id, agent_id),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repositories (tenant_id, id) ON DELETE RESTRICT
);

CREATE INDEX agent_configs_by_repository ON agent_configs (tenant_id, repository_id);

-- line is 0 where there is none; field is '' for the whole file.
CREATE TABLE agent_config_findings (
    tenant_id TEXT COLLATE "C" NOT NULL,
    agent_id  TEXT COLLATE "C" NOT NULL,
    notice    BOOLEAN          NOT NULL,
    position  BIGINT           NOT NULL CHECK (position >= 0),
    field     TEXT COLLATE "C" NOT NULL,
    line      BIGINT           NOT NULL CHECK (line >= 0),
    message   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, agent_id, notice, position),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agent_configs (tenant_id, agent_id) ON DELETE CASCADE
);

-- What files of GitLab's name and do not say where it is.
CREATE TABLE gitlab_projects (
    tenant_id TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    project   TEXT COLLATE "C" NOT NULL CHECK (project <> ''),
    url       TEXT COLLATE "C" NOT NULL CHECK (url <> ''),
    PRIMARY KEY (tenant_id, project)
);

-- content comes last: a row is read up to the last column asked for, and the others are small.
CREATE TABLE bundles (
    tenant_id  TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    digest     TEXT COLLATE "C" NOT NULL CHECK (digest <> ''),
    size       BIGINT           NOT NULL CHECK (size >= 0),
    objects    BIGINT           NOT NULL CHECK (objects >= 0),
    created_at BIGINT           NOT NULL,
    content    BYTEA            NOT NULL,
    PRIMARY KEY (tenant_id, digest)
);

CREATE INDEX bundles_by_age ON bundles (tenant_id, created_at);

-- Repositories, environments and bundles in use cannot be deleted below a deployment.
-- environment_name is "owner/name" where the environment is another tenant's. last_run and
-- last_revision are the numbers given so far: they outlive the rows that had them.
CREATE TABLE deployments (
    tenant_id           TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE RESTRICT,
    id                  TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    name                TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    repository_id       TEXT COLLATE "C" NOT NULL,
    path                TEXT COLLATE "C" NOT NULL,
    revision            TEXT COLLATE "C" NOT NULL,
    kind                TEXT COLLATE "C" NOT NULL,
    helm_release        TEXT COLLATE "C" NOT NULL,
    helm_values_files   TEXT COLLATE "C" NOT NULL,
    helm_values         TEXT COLLATE "C" NOT NULL,
    helm_skip_crds      BOOLEAN          NOT NULL,
    helm_set            TEXT COLLATE "C" NOT NULL,
    environment_tenant  TEXT COLLATE "C" NOT NULL,
    environment_id      TEXT COLLATE "C" NOT NULL,
    environment_name    TEXT COLLATE "C" NOT NULL,
    namespace           TEXT COLLATE "C" NOT NULL,
    prune               BOOLEAN          NOT NULL,
    adopt               BOOLEAN          NOT NULL,
    allow_empty         BOOLEAN          NOT NULL,
    manual              BOOLEAN          NOT NULL,
    prune_on_detach     BOOLEAN          NOT NULL,
    force_conflicts     BOOLEAN          NOT NULL,
    replace_objects     BOOLEAN          NOT NULL,
    dry_run             BOOLEAN          NOT NULL,
    drift               TEXT COLLATE "C" NOT NULL,
    ignore_fields       TEXT COLLATE "C" NOT NULL,
    service_account     TEXT COLLATE "C" NOT NULL,
    propagation         TEXT COLLATE "C" NOT NULL,
    prune_timeout       BIGINT           NOT NULL,
    ready_timeout       BIGINT           NOT NULL,
    prune_limit_objects BIGINT           NOT NULL,
    prune_limit_percent BIGINT           NOT NULL,
    create_namespace    BOOLEAN          NOT NULL,
    suspended_at        BIGINT,
    suspended_by        TEXT COLLATE "C" NOT NULL,
    suspension_reason   TEXT COLLATE "C" NOT NULL,
    pin_revision        BIGINT           NOT NULL CHECK (pin_revision >= 0),
    pin_commit          TEXT COLLATE "C" NOT NULL,
    pinned_at           BIGINT,
    pinned_by           TEXT COLLATE "C" NOT NULL,
    pin_source          BIGINT           NOT NULL CHECK (pin_source >= 0),
    pin_terminated_run  BIGINT           NOT NULL DEFAULT 0 CHECK (pin_terminated_run >= 0),
    spec                BIGINT           NOT NULL CHECK (spec > 0),
    source_revision     BIGINT           NOT NULL CHECK (source_revision > 0),
    pending_spec        BIGINT           NOT NULL DEFAULT 0 CHECK (pending_spec >= 0),
    created_at          BIGINT           NOT NULL,
    deleted_at          BIGINT,
    rendered_commit     TEXT COLLATE "C" NOT NULL,
    rendered_key        TEXT COLLATE "C" NOT NULL,
    rendered_digest     TEXT COLLATE "C" CHECK (rendered_digest <> ''),
    rendered_at         BIGINT,
    rendered_reads      TEXT COLLATE "C" NOT NULL,
    rendered_volatile   BOOLEAN          NOT NULL,
    detected            TEXT COLLATE "C" NOT NULL,
    source_error        TEXT COLLATE "C" NOT NULL,
    source_reason       TEXT COLLATE "C" NOT NULL,
    source_at           BIGINT,
    last_run            BIGINT           NOT NULL DEFAULT 0 CHECK (last_run >= 0),
    last_revision       BIGINT           NOT NULL DEFAULT 0 CHECK (last_revision >= 0),
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repositories (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (environment_tenant, environment_id) REFERENCES environments (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (tenant_id, rendered_digest) REFERENCES bundles (tenant_id, digest) ON DELETE RESTRICT
);

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
    tenant_id           TEXT COLLATE "C" NOT NULL,
    deployment_id       TEXT COLLATE "C" NOT NULL,
    deployment_name     TEXT COLLATE "C" NOT NULL,
    spec                BIGINT           NOT NULL CHECK (spec > 0),
    repository_id       TEXT COLLATE "C" NOT NULL,
    path                TEXT COLLATE "C" NOT NULL,
    revision            TEXT COLLATE "C" NOT NULL,
    kind                TEXT COLLATE "C" NOT NULL,
    helm_release        TEXT COLLATE "C" NOT NULL,
    helm_values_files   TEXT COLLATE "C" NOT NULL,
    helm_values         TEXT COLLATE "C" NOT NULL,
    helm_skip_crds      BOOLEAN          NOT NULL,
    environment_tenant  TEXT COLLATE "C" NOT NULL,
    environment_id      TEXT COLLATE "C" NOT NULL,
    environment_name    TEXT COLLATE "C" NOT NULL,
    namespace           TEXT COLLATE "C" NOT NULL,
    prune               BOOLEAN          NOT NULL,
    adopt               BOOLEAN          NOT NULL,
    allow_empty         BOOLEAN          NOT NULL,
    manual              BOOLEAN          NOT NULL,
    prune_on_detach     BOOLEAN          NOT NULL,
    force_conflicts     BOOLEAN          NOT NULL,
    replace_objects     BOOLEAN          NOT NULL,
    dry_run             BOOLEAN          NOT NULL,
    drift               TEXT COLLATE "C" NOT NULL,
    ignore_fields       TEXT COLLATE "C" NOT NULL,
    service_account     TEXT COLLATE "C" NOT NULL,
    propagation         TEXT COLLATE "C" NOT NULL,
    prune_timeout       BIGINT           NOT NULL,
    ready_timeout       BIGINT           NOT NULL,
    prune_limit_objects BIGINT           NOT NULL,
    prune_limit_percent BIGINT           NOT NULL,
    create_namespace    BOOLEAN          NOT NULL,
    helm_set            TEXT COLLATE "C" NOT NULL,
    labels              TEXT COLLATE "C" NOT NULL,
    globs               TEXT COLLATE "C" NOT NULL,
    variables           TEXT COLLATE "C" NOT NULL,
    asked_by            TEXT COLLATE "C" NOT NULL,
    edited_at           BIGINT,
    reason              TEXT COLLATE "C" NOT NULL,
    problem             TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, deployment_id),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, repository_id) REFERENCES repositories (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (environment_tenant, environment_id) REFERENCES environments (tenant_id, id) ON DELETE RESTRICT
);

CREATE INDEX pending_specs_by_repository ON pending_specs (tenant_id, repository_id, deployment_id);
CREATE INDEX pending_specs_by_environment ON pending_specs (environment_id, tenant_id, deployment_id);
CREATE INDEX pending_specs_in_error ON pending_specs (tenant_id, deployment_name, deployment_id) WHERE problem <> '';

CREATE TABLE deployment_labels (
    tenant_id       TEXT COLLATE "C" NOT NULL,
    deployment_id   TEXT COLLATE "C" NOT NULL,
    key             TEXT COLLATE "C" NOT NULL CHECK (key <> ''),
    value           TEXT COLLATE "C" NOT NULL,
    deployment_name TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, deployment_id, key),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX deployment_labels_by_value ON deployment_labels (tenant_id, key, value, deployment_name, deployment_id);

CREATE TABLE deployment_globs (
    tenant_id     TEXT COLLATE "C" NOT NULL,
    deployment_id TEXT COLLATE "C" NOT NULL,
    position      BIGINT           NOT NULL CHECK (position >= 0),
    glob          TEXT COLLATE "C" NOT NULL CHECK (glob <> ''),
    PRIMARY KEY (tenant_id, deployment_id, position),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
);

CREATE TABLE deployment_variables (
    tenant_id     TEXT COLLATE "C" NOT NULL,
    deployment_id TEXT COLLATE "C" NOT NULL,
    name          TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    value         TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, deployment_id, name),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
);

-- As repository_words, of the name and the path.
CREATE TABLE deployment_words (
    tenant_id     TEXT COLLATE "C" NOT NULL,
    suffix        TEXT COLLATE "C" NOT NULL CHECK (suffix <> ''),
    deployment_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, suffix, deployment_id)
);

CREATE TABLE deployment_variants (
    tenant_id         TEXT COLLATE "C" NOT NULL,
    deployment_id     TEXT COLLATE "C" NOT NULL,
    name              TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    rendered_commit   TEXT COLLATE "C" NOT NULL,
    rendered_key      TEXT COLLATE "C" NOT NULL,
    rendered_digest   TEXT COLLATE "C" CHECK (rendered_digest <> ''),
    rendered_at       BIGINT,
    rendered_reads    TEXT COLLATE "C" NOT NULL,
    rendered_volatile BOOLEAN          NOT NULL,
    error             TEXT COLLATE "C" NOT NULL,
    error_reason      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, deployment_id, name),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, rendered_digest) REFERENCES bundles (tenant_id, digest) ON DELETE RESTRICT
);

CREATE INDEX deployment_variants_in_error ON deployment_variants (tenant_id, error_reason, deployment_id) WHERE error <> '';
CREATE INDEX deployment_variants_by_digest ON deployment_variants (tenant_id, rendered_digest);

-- Deployments that a file in Git declares, or did. The agent is named, not referred to: what it had
-- outlives it.
CREATE TABLE declarations (
    tenant_id       TEXT COLLATE "C" NOT NULL,
    deployment_id   TEXT COLLATE "C" NOT NULL,
    agent_name      TEXT COLLATE "C" NOT NULL CHECK (agent_name <> ''),
    name            TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    repo_url        TEXT COLLATE "C" NOT NULL,
    file            TEXT COLLATE "C" NOT NULL,
    prune_on_remove BOOLEAN          NOT NULL,
    released_at     BIGINT,
    PRIMARY KEY (tenant_id, deployment_id),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX declarations_by_agent ON declarations (tenant_id, agent_name, name, deployment_id);

CREATE TABLE revisions (
    tenant_id     TEXT COLLATE "C" NOT NULL,
    deployment_id TEXT COLLATE "C" NOT NULL,
    seq           BIGINT           NOT NULL CHECK (seq > 0),
    commit_hash   TEXT COLLATE "C" NOT NULL,
    rendered_at   BIGINT,
    PRIMARY KEY (tenant_id, deployment_id, seq),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
);

-- variant is '' for a deployment that has none.
CREATE TABLE revision_bundles (
    tenant_id     TEXT COLLATE "C" NOT NULL,
    deployment_id TEXT COLLATE "C" NOT NULL,
    seq           BIGINT           NOT NULL,
    variant       TEXT COLLATE "C" NOT NULL,
    digest        TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, deployment_id, seq, variant),
    FOREIGN KEY (tenant_id, deployment_id, seq) REFERENCES revisions (tenant_id, deployment_id, seq) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, digest) REFERENCES bundles (tenant_id, digest) ON DELETE RESTRICT
);

CREATE INDEX revision_bundles_by_digest ON revision_bundles (tenant_id, digest);

-- Targets outlive their agent, whose name they keep, and hold their deployment: its tombstones have
-- to arrive first. tenant_id is the deployment's. observed_digest is what an agent says and so
-- refers to nothing.
--
-- newest_digest is a copy of what the deployment, or the target's variant of it, has rendered last.
-- The four generated columns are what users read and filter by: read_sync, read_health and read_reason as
-- fleet.Target.ViewAt has them for an agent that is connected, and waiting when something newer was
-- rendered than was sent. Statuses are written over and over: room for another version of every row
-- in its page keeps those that change no word which is filtered by off the indexes.
CREATE TABLE targets (
    tenant_id                   TEXT COLLATE "C" NOT NULL,
    id                          TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    deployment_id               TEXT COLLATE "C" NOT NULL,
    deployment_name             TEXT COLLATE "C" NOT NULL,
    agent_tenant                TEXT COLLATE "C" NOT NULL,
    agent_id                    TEXT COLLATE "C" REFERENCES agents (id) ON DELETE SET NULL,
    agent_name                  TEXT COLLATE "C" NOT NULL,
    grant_id                    TEXT COLLATE "C" CHECK (grant_id <> ''),
    variant                     TEXT COLLATE "C" NOT NULL,
    variant_error               TEXT COLLATE "C" NOT NULL,
    -- The kind filter of the agent, and which object of the newest state it refuses.
    included_kinds              TEXT COLLATE "C" NOT NULL,
    excluded_kinds              TEXT COLLATE "C" NOT NULL,
    kind_error                  TEXT COLLATE "C" NOT NULL,
    detached_at                 BIGINT,
    detached_why                TEXT COLLATE "C" NOT NULL,
    left_in                     TEXT COLLATE "C" NOT NULL,
    newest_digest               TEXT COLLATE "C",
    desired_epoch               BIGINT           NOT NULL,
    desired_generation          BIGINT           NOT NULL,
    desired_digest              TEXT COLLATE "C" CHECK (desired_digest <> ''),
    desired_commit              TEXT COLLATE "C" NOT NULL,
    desired_namespace           TEXT COLLATE "C" NOT NULL,
    desired_prune               BOOLEAN          NOT NULL,
    desired_adopt               BOOLEAN          NOT NULL,
    desired_allow_empty         BOOLEAN          NOT NULL,
    desired_manual              BOOLEAN          NOT NULL,
    desired_prune_on_detach     BOOLEAN          NOT NULL,
    desired_force_conflicts     BOOLEAN          NOT NULL,
    desired_replace_objects     BOOLEAN          NOT NULL,
    desired_dry_run             BOOLEAN          NOT NULL,
    desired_drift               TEXT COLLATE "C" NOT NULL,
    desired_ignore_fields       TEXT COLLATE "C" NOT NULL,
    desired_service_account     TEXT COLLATE "C" NOT NULL,
    desired_propagation         TEXT COLLATE "C" NOT NULL,
    desired_prune_timeout       BIGINT           NOT NULL,
    desired_ready_timeout       BIGINT           NOT NULL,
    desired_prune_limit_objects BIGINT           NOT NULL,
    desired_prune_limit_percent BIGINT           NOT NULL,
    desired_create_namespace    BOOLEAN          NOT NULL,
    desired_hold_prune          BOOLEAN          NOT NULL,
    desired_consent             BOOLEAN          NOT NULL,
    desired_confirmed           TEXT COLLATE "C" NOT NULL,
    desired_hand_overs          TEXT COLLATE "C" NOT NULL,
    desired_tombstone           BOOLEAN          NOT NULL,
    desired_hold_protected      BOOLEAN          NOT NULL,
    desired_detached            BOOLEAN          NOT NULL,
    desired_source              BIGINT           NOT NULL,
    observed_epoch              BIGINT           NOT NULL,
    observed_generation         BIGINT           NOT NULL,
    observed_digest             TEXT COLLATE "C" NOT NULL,
    observed_sync               TEXT COLLATE "C" NOT NULL,
    observed_health             TEXT COLLATE "C" NOT NULL,
    observed_as_of              BIGINT,
    observed_message            TEXT COLLATE "C" NOT NULL,
    observed_reason             TEXT COLLATE "C" NOT NULL,
    observed_sync_at            BIGINT,
    observed_health_at          BIGINT,
    read_sync TEXT COLLATE "C" NOT NULL GENERATED ALWAYS AS (CASE
        WHEN observed_sync = '' THEN 'Pending'
        WHEN observed_sync <> 'Synced' THEN observed_sync
        WHEN observed_epoch <> desired_epoch OR observed_generation <> desired_generation THEN 'Pending'
        ELSE 'Synced' END) STORED,
    read_health TEXT COLLATE "C" NOT NULL GENERATED ALWAYS AS (CASE
        WHEN observed_sync = '' THEN 'Unknown'
        ELSE observed_health END) STORED,
    read_reason TEXT COLLATE "C" NOT NULL GENERATED ALWAYS AS (CASE
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
    waiting BOOLEAN NOT NULL GENERATED ALWAYS AS (
        newest_digest IS NOT NULL AND desired_digest IS DISTINCT FROM newest_digest
        AND NOT desired_tombstone AND NOT desired_detached AND detached_at IS NULL) STORED,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, deployment_id, agent_id),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (tenant_id, grant_id) REFERENCES grants (grantee_tenant_id, id) ON DELETE RESTRICT,
    FOREIGN KEY (tenant_id, desired_digest) REFERENCES bundles (tenant_id, digest) ON DELETE RESTRICT
) WITH (fillfactor = 50);

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
    tenant_id   TEXT COLLATE "C" NOT NULL,
    target_id   TEXT COLLATE "C" NOT NULL,
    api_group   TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    namespace   TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    api_version TEXT COLLATE "C" NOT NULL,
    sync        TEXT COLLATE "C" NOT NULL,
    health      TEXT COLLATE "C" NOT NULL,
    message     TEXT COLLATE "C" NOT NULL,
    reason      TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, target_id, api_group, kind, namespace, name),
    FOREIGN KEY (tenant_id, target_id) REFERENCES targets (tenant_id, id) ON DELETE CASCADE
) WITH (fillfactor = 50);

CREATE INDEX target_objects_held ON target_objects (tenant_id, target_id, kind, api_group, namespace, name) WHERE sync = 'Held';

-- operation_id refers to nothing: operations are forgotten sooner than runs.
CREATE TABLE sync_runs (
    tenant_id     TEXT COLLATE "C" NOT NULL,
    id            TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    deployment_id TEXT COLLATE "C" NOT NULL,
    seq           BIGINT           NOT NULL CHECK (seq > 0),
    kind          TEXT COLLATE "C" NOT NULL CHECK (kind IN ('sync', 'rollback')),
    revision      TEXT COLLATE "C" NOT NULL,
    kept          BIGINT           NOT NULL CHECK (kept >= 0),
    phase         TEXT COLLATE "C" NOT NULL CHECK (phase IN ('Pending', 'Running', 'Succeeded', 'Failed', 'Terminated')),
    reason        TEXT COLLATE "C" NOT NULL,
    message       TEXT COLLATE "C" NOT NULL,
    commit_hash   TEXT COLLATE "C" NOT NULL,
    created_by    TEXT COLLATE "C" NOT NULL,
    created_at    BIGINT           NOT NULL,
    started_at    BIGINT,
    finished_at   BIGINT,
    operation_id  TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, deployment_id, seq),
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX sync_runs_open ON sync_runs (tenant_id, deployment_id, seq) WHERE phase IN ('Pending', 'Running');

-- A run does not wait for a target that is gone.
CREATE TABLE run_targets (
    tenant_id  TEXT COLLATE "C" NOT NULL,
    run_id     TEXT COLLATE "C" NOT NULL,
    target_id  TEXT COLLATE "C" NOT NULL,
    epoch      BIGINT           NOT NULL,
    generation BIGINT           NOT NULL,
    done       BOOLEAN          NOT NULL,
    failed     BOOLEAN          NOT NULL,
    reason     TEXT COLLATE "C" NOT NULL,
    message    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant_id, run_id, target_id),
    FOREIGN KEY (tenant_id, run_id) REFERENCES sync_runs (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, target_id) REFERENCES targets (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX run_targets_by_target ON run_targets (tenant_id, target_id, done);

-- step increases with every write: two servers never take the same step.
CREATE TABLE engine_upgrades (
    tenant_id   TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    id          TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    name        TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    revision    TEXT COLLATE "C" NOT NULL,
    timeout     BIGINT           NOT NULL CHECK (timeout > 0),
    phase       TEXT COLLATE "C" NOT NULL CHECK (phase IN ('Running', 'Succeeded', 'Halted', 'RollbackFailed')),
    reason      TEXT COLLATE "C" NOT NULL,
    message     TEXT COLLATE "C" NOT NULL,
    halt        TEXT COLLATE "C" NOT NULL CHECK (halt IN ('', 'AfterInstance', 'RollBack')),
    halted_by   TEXT COLLATE "C" NOT NULL,
    created_by  TEXT COLLATE "C" NOT NULL,
    step        BIGINT           NOT NULL,
    created_at  BIGINT           NOT NULL,
    finished_at BIGINT,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
);

CREATE INDEX engine_upgrades_open ON engine_upgrades (tenant_id, name) WHERE phase = 'Running';

-- Agents and deployments are named, not referred to: what is done stays readable after their deletion.
CREATE TABLE engine_upgrade_instances (
    tenant_id         TEXT COLLATE "C" NOT NULL,
    upgrade_id        TEXT COLLATE "C" NOT NULL,
    place             BIGINT           NOT NULL,
    agent_id          TEXT COLLATE "C" NOT NULL,
    agent             TEXT COLLATE "C" NOT NULL,
    deployment_id     TEXT COLLATE "C" NOT NULL,
    deployment        TEXT COLLATE "C" NOT NULL,
    canary_id         TEXT COLLATE "C" NOT NULL,
    canary            TEXT COLLATE "C" NOT NULL,
    phase             TEXT COLLATE "C" NOT NULL CHECK (phase IN ('Pending', 'Installing', 'Checking', 'Upgraded', 'RollingBack', 'CheckingRollback', 'RolledBack', 'RollbackFailed')),
    reason            TEXT COLLATE "C" NOT NULL,
    message           TEXT COLLATE "C" NOT NULL,
    before_revision   BIGINT           NOT NULL,
    before_commit     TEXT COLLATE "C" NOT NULL,
    commit_hash       TEXT COLLATE "C" NOT NULL,
    run_id            TEXT COLLATE "C" NOT NULL,
    canary_epoch      BIGINT           NOT NULL,
    canary_generation BIGINT           NOT NULL,
    deadline          BIGINT,
    started_at        BIGINT,
    finished_at       BIGINT,
    PRIMARY KEY (tenant_id, upgrade_id, place),
    FOREIGN KEY (tenant_id, upgrade_id) REFERENCES engine_upgrades (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX engine_upgrade_instances_of ON engine_upgrade_instances (tenant_id, deployment_id);

-- Kubernetes resources that declare resources here. resource_id is repeated in the column of its kind, so that a row is
-- deleted with its resource.
CREATE TABLE owners (
    tenant_id      TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    resource_kind  TEXT COLLATE "C" NOT NULL CHECK (resource_kind IN ('tenant', 'agent', 'environment', 'credential', 'deployment', 'run')),
    resource_id    TEXT COLLATE "C" NOT NULL CHECK (resource_id <> ''),
    kind           TEXT COLLATE "C" NOT NULL CHECK (kind <> ''),
    namespace      TEXT COLLATE "C" NOT NULL,
    name           TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    uid            TEXT COLLATE "C" NOT NULL CHECK (uid <> ''),
    generation     BIGINT NOT NULL,
    created        BIGINT NOT NULL,
    missing_since  BIGINT,
    agent_id       TEXT COLLATE "C",
    environment_id TEXT COLLATE "C",
    credential_id  TEXT COLLATE "C",
    deployment_id  TEXT COLLATE "C",
    run_id         TEXT COLLATE "C",
    PRIMARY KEY (tenant_id, resource_kind, resource_id),
    FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, environment_id) REFERENCES environments (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, credential_id) REFERENCES credentials (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, deployment_id) REFERENCES deployments (tenant_id, id) ON DELETE CASCADE,
    FOREIGN KEY (tenant_id, run_id) REFERENCES sync_runs (tenant_id, id) ON DELETE CASCADE
);

CREATE INDEX owners_by_kind ON owners (resource_kind, tenant_id, resource_id);
CREATE INDEX owners_by_name ON owners (tenant_id, kind, name);
CREATE UNIQUE INDEX owners_of_tenants ON owners (uid) WHERE resource_kind = 'tenant';
CREATE INDEX owners_of_agents ON owners (tenant_id, agent_id) WHERE agent_id IS NOT NULL;
CREATE INDEX owners_of_environments ON owners (tenant_id, environment_id) WHERE environment_id IS NOT NULL;
CREATE INDEX owners_of_credentials ON owners (tenant_id, credential_id) WHERE credential_id IS NOT NULL;
CREATE INDEX owners_of_deployments ON owners (tenant_id, deployment_id) WHERE deployment_id IS NOT NULL;
CREATE INDEX owners_of_runs ON owners (tenant_id, run_id) WHERE run_id IS NOT NULL;

CREATE TABLE operations (
    tenant_id   TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    id          TEXT COLLATE "C" NOT NULL UNIQUE CHECK (id <> ''),
    action      TEXT COLLATE "C" NOT NULL CHECK (action <> ''),
    kind        TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    resource_id TEXT COLLATE "C" NOT NULL,
    state       TEXT COLLATE "C" NOT NULL CHECK (state IN ('Waiting', 'InProgress', 'Completed', 'Failed')),
    message     TEXT COLLATE "C" NOT NULL,
    created_by  TEXT COLLATE "C" NOT NULL,
    created_at  BIGINT           NOT NULL,
    updated_at  BIGINT           NOT NULL,
    finished_at BIGINT,
    PRIMARY KEY (tenant_id, id)
);

CREATE INDEX operations_by_age ON operations (tenant_id, created_at, id);
CREATE INDEX operations_by_kind ON operations (tenant_id, kind, name, created_at, id);
CREATE INDEX operations_by_state ON operations (tenant_id, state, created_at, id);
CREATE INDEX operations_by_resource ON operations (tenant_id, resource_id, created_at, id);
CREATE INDEX operations_finished ON operations (finished_at) WHERE finished_at IS NOT NULL;

-- Numbers of the three logs below are taken under a lock that is held to the commit (kedge_finish),
-- so they grow in its order. tenant_id is NULL for what concerns the whole fleet.
CREATE TABLE audit_events (
    seq         BIGINT           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id   TEXT COLLATE "C" REFERENCES tenants (id) ON DELETE CASCADE,
    at          BIGINT           NOT NULL,
    actor       TEXT COLLATE "C" NOT NULL,
    component   TEXT COLLATE "C" NOT NULL,
    action      TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    name        TEXT COLLATE "C" NOT NULL,
    resource_id TEXT COLLATE "C" NOT NULL,
    request     TEXT COLLATE "C" NOT NULL,
    address     TEXT COLLATE "C" NOT NULL,
    detail      TEXT COLLATE "C" NOT NULL
);

CREATE INDEX audit_events_by_tenant ON audit_events (tenant_id, seq);
CREATE INDEX audit_events_by_tenant_actor ON audit_events (tenant_id, actor, seq);
CREATE INDEX audit_events_by_tenant_action ON audit_events (tenant_id, action, seq);
CREATE INDEX audit_events_by_tenant_kind ON audit_events (tenant_id, kind, name, seq);
CREATE INDEX audit_events_by_actor ON audit_events (actor, seq);
CREATE INDEX audit_events_by_action ON audit_events (action, seq);
CREATE INDEX audit_events_by_kind ON audit_events (kind, name, seq);
CREATE INDEX audit_events_by_time ON audit_events (at);

CREATE TABLE events (
    seq        BIGINT           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id  TEXT COLLATE "C" NOT NULL REFERENCES tenants (id) ON DELETE CASCADE,
    at         BIGINT           NOT NULL,
    type       TEXT COLLATE "C" NOT NULL CHECK (type IN ('Normal', 'Warning')),
    reason     TEXT COLLATE "C" NOT NULL,
    agent      TEXT COLLATE "C" NOT NULL,
    deployment TEXT COLLATE "C" NOT NULL,
    object     TEXT COLLATE "C" NOT NULL,
    message    TEXT COLLATE "C" NOT NULL
);

CREATE INDEX events_by_tenant ON events (tenant_id, seq);
CREATE INDEX events_by_agent ON events (tenant_id, agent, seq);
CREATE INDEX events_by_deployment ON events (tenant_id, deployment, seq);

-- The outbox refers to nothing: its records outlive the rows that they are about. tenant_id is ''
-- for those about the whole fleet.
CREATE TABLE changes (
    seq           BIGINT           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id     TEXT COLLATE "C" NOT NULL,
    kind          TEXT COLLATE "C" NOT NULL,
    id            TEXT COLLATE "C" NOT NULL,
    agent_id      TEXT COLLATE "C" NOT NULL,
    deployment_id TEXT COLLATE "C" NOT NULL,
    reason        TEXT COLLATE "C" NOT NULL DEFAULT '',
    ref           TEXT COLLATE "C" NOT NULL DEFAULT '',
    at            BIGINT           NOT NULL
);

CREATE INDEX changes_by_tenant ON changes (tenant_id, seq);

-- Answers by idempotency key. scope is who asked, over all tenants.
CREATE TABLE replies (
    scope    TEXT COLLATE "C" NOT NULL,
    key      TEXT COLLATE "C" NOT NULL CHECK (key <> ''),
    request  BYTEA            NOT NULL,
    status   BIGINT           NOT NULL CHECK (status >= 0),
    body     BYTEA            NOT NULL,
    location TEXT COLLATE "C" NOT NULL,
    at       BIGINT           NOT NULL,
    PRIMARY KEY (scope, key)
);

CREATE INDEX replies_by_age ON replies (at);

-- How often the structure of a subject was changed: by all that is not a status, a connection or an
-- event. A subject is a tenant, what others have on the places of a tenant, or the settings (see
-- sqlstore.Subject); '' is all of them. A transaction that changes structure commits only if the
-- numbers of all subjects that it looked at are what they were when it looked first. Two that decide
-- on what the other changes (an agent that joins, a deployment that looks for agents) thus never both
-- commit.
CREATE TABLE serials (
    subject TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    n       BIGINT           NOT NULL
) WITH (fillfactor = 50);

-- kedge_finish is called before the first row of events or changes is written. From here to the
-- commit the transaction excludes all others that have come as far. seen holds what the caller found
-- in serials for looked; written are the subjects whose structure it has changed, none if none.
-- gates are what a transaction that is run again holds exclusively, so that nothing changes under it:
-- who finds one closed gives way at once, rather than wait with rows locked that the other may need.
-- 1801806951 is the class of all advisory locks of a transaction; 0 is the lock of the outbox.
-- +goose StatementBegin
CREATE FUNCTION kedge_finish(looked TEXT[], seen BIGINT[], written TEXT[], gates INTEGER[]) RETURNS VOID LANGUAGE plpgsql AS $$
DECLARE
    gate INTEGER;
BEGIN
    FOREACH gate IN ARRAY gates LOOP
        IF NOT pg_try_advisory_xact_lock_shared(1801806951, gate) THEN
            RAISE EXCEPTION 'another transaction goes first' USING ERRCODE = 'serialization_failure';
        END IF;
    END LOOP;
    PERFORM pg_advisory_xact_lock(1801806951, 0);
    IF EXISTS (SELECT FROM unnest(looked, seen) AS l (subject, n)
               WHERE l.n <> COALESCE((SELECT s.n FROM serials s WHERE s.subject = l.subject), 0)) THEN
        RAISE EXCEPTION 'what was decided upon has changed' USING ERRCODE = 'serialization_failure';
    END IF;
    INSERT INTO serials (subject, n) SELECT w, 1 FROM unnest(written) AS w
    ON CONFLICT (subject) DO UPDATE SET n = serials.n + 1;
END;
$$;
-- +goose StatementEnd

-- Walls (invariant 7). Two roles, entered by the server for each statement: kedge_app has the rows of
-- one tenant, which is set with it; kedge_fleet reads all, for the few methods that take no tenant, and
-- writes only what those write. The owner of the tables has the rows of nobody: a migration that moves
-- data takes FORCE off the table, and puts it on again.
-- +goose StatementBegin
DO $$
DECLARE
    walled REGCLASS;
BEGIN
    FOR walled IN SELECT c.oid FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                  WHERE c.relnamespace = current_schema::regnamespace AND c.relkind = 'r'
                    AND a.attname = 'tenant_id' AND NOT a.attisdropped
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', walled);
        EXECUTE format('CREATE POLICY tenant ON %s TO kedge_app USING (tenant_id = current_setting(''kedge.tenant'', true))', walled);
        EXECUTE format('CREATE POLICY fleet ON %s TO kedge_fleet USING (true)', walled);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO kedge_app', walled);
        EXECUTE format('GRANT SELECT ON %s TO kedge_fleet', walled);
    END LOOP;
    -- Both tenants of a grant read it, and its limits; only the one that gave it changes them.
    FOREACH walled IN ARRAY ARRAY['grants', 'grant_namespaces', 'grant_kinds']::REGCLASS[] LOOP
        EXECUTE format('CREATE POLICY grantee ON %s FOR SELECT TO kedge_app USING (grantee_tenant_id = current_setting(''kedge.tenant'', true))', walled);
    END LOOP;
END;
$$;
-- +goose StatementEnd

ALTER TABLE serials ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON serials TO kedge_app USING (subject = current_setting('kedge.tenant', true));
CREATE POLICY fleet ON serials TO kedge_fleet USING (true);
GRANT SELECT ON serials TO kedge_app;
GRANT SELECT, INSERT, UPDATE ON serials TO kedge_fleet;

-- Logs are appended to, and trimmed for all tenants at once.
REVOKE UPDATE, DELETE ON changes, events, audit_events FROM kedge_app;
GRANT DELETE ON changes, events, audit_events, operations TO kedge_fleet;
GRANT INSERT ON audit_events TO kedge_fleet;

-- The end of all connections of a server, whosever they are.
GRANT UPDATE (last_seen_at, disconnected_at) ON connections TO kedge_fleet;
GRANT UPDATE (connected) ON agents TO kedge_fleet;

-- What is of no tenant, and tokens, which may be.
REVOKE DELETE ON api_tokens FROM kedge_app;
GRANT INSERT, UPDATE (revoked_at), DELETE ON api_tokens TO kedge_fleet;
GRANT SELECT, INSERT ON api_token_groups TO kedge_fleet;
GRANT SELECT, INSERT, UPDATE, DELETE ON tenants, people, server_replicas, replies TO kedge_fleet;
GRANT SELECT, UPDATE ON settings TO kedge_fleet;
GRANT SELECT ON goose_db_version TO kedge_app;
