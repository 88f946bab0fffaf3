"""the tables of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "devices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("slug", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("ceilings", sa.JSON(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_devices"),
        sa.UniqueConstraint("slug", "fingerprint", name="uq_devices_slug_fingerprint"),
    )
    op.create_index("ix_devices_slug", "devices", ["slug"])

    op.create_table(
        "environments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("triton", sa.String(), nullable=False),
        sa.Column("ptxas", sa.String(), nullable=False),
        sa.Column("torch", sa.String(), nullable=False),
        sa.Column("driver", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_environments"),
        sa.UniqueConstraint("triton", "ptxas", "torch", "driver", name="uq_environments_triton_ptxas_torch_driver"),
    )
    op.create_table(
        "kernels",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("op", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("signature", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_kernels"),
        sa.UniqueConstraint("op", "source", "digest", name="uq_kernels_op_source_digest"),
    )
    op.create_table(
        "problems",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("op", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_problems"),
        sa.UniqueConstraint("text", name="uq_problems_text"),
    )
    op.create_index("ix_problems_op", "problems", ["op"])

    op.create_table(
        "requests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("op", sa.String(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("first_at", sa.String(), nullable=False),
        sa.Column("last_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_requests"),
        sa.UniqueConstraint("problem", "device", name="uq_requests_problem_device"),
    )
    op.create_table(
        "store",
        sa.Column("uuid", sa.String(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("uuid", name="pk_store"),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kernel_id", sa.Integer(), nullable=False),
        sa.Column("problem_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("recorded", sa.String(), nullable=True),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("stopped", sa.String(), nullable=True),
        sa.Column("seconds", sa.JSON(), nullable=True),
        sa.Column("tuner", sa.String(), nullable=False),
        sa.Column("started_at", sa.String(), nullable=False),
        sa.Column("ended_at", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_runs_device_id"),
        sa.ForeignKeyConstraint(["environment_id"], ["environments.id"], name="fk_runs_environment_id"),
        sa.ForeignKeyConstraint(["kernel_id"], ["kernels.id"], name="fk_runs_kernel_id"),
        sa.ForeignKeyConstraint(["problem_id"], ["problems.id"], name="fk_runs_problem_id"),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
    )
    op.create_index("ix_runs_problem_id_device_id", "runs", ["problem_id", "device_id"])

    op.create_table(
        "answers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("about_id", sa.Integer(), nullable=True),
        sa.Column("op", sa.String(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("policy", sa.String(), nullable=False),
        sa.Column("triton", sa.String(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("latency_us", sa.Double(), nullable=False),
        sa.Column("interval_us", sa.JSON(), nullable=False),
        sa.Column("speedup", sa.Double(), nullable=True),
        sa.Column("speedup_interval", sa.JSON(), nullable=True),
        sa.Column("default_latency_us", sa.Double(), nullable=True),
        sa.Column("vendor_latency_us", sa.Double(), nullable=True),
        sa.Column("ties", sa.JSON(), nullable=False),
        sa.Column("unresolved", sa.Boolean(), nullable=False),
        sa.Column("flops", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["about_id"], ["answers.id"], name="fk_answers_about_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_answers_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_answers"),
    )
    op.create_index("ix_answers_device", "answers", ["device"])
    op.create_index("ix_answers_op", "answers", ["op"])

    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("op", sa.String(), nullable=False),
        sa.Column("problem", sa.String(), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=True),
        sa.Column("lease_until", sa.String(), nullable=True),
        sa.Column("run_id", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_jobs_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
    )
    op.create_index("ix_jobs_status", "jobs", ["status"])

    op.create_table(
        "rounds",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("latencies", sa.JSON(), nullable=False),
        sa.Column("state", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_rounds_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_rounds"),
        sa.UniqueConstraint("run_id", "number", name="uq_rounds_run_id_number"),
    )
    op.create_table(
        "trials",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("config_text", sa.String(), nullable=False),
        sa.Column("config", sa.JSON(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("stage", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=False),
        sa.Column("latency_us", sa.Double(), nullable=True),
        sa.Column("samples", sa.JSON(), nullable=False),
        sa.Column("compile_s", sa.Double(), nullable=True),
        sa.Column("compiled_by", sa.String(), nullable=False),
        sa.Column("registers", sa.Integer(), nullable=True),
        sa.Column("spills", sa.Integer(), nullable=True),
        sa.Column("shared_bytes", sa.Integer(), nullable=True),
        sa.Column("max_error", sa.Double(), nullable=True),
        sa.Column("tolerance", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_trials_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_trials"),
        sa.UniqueConstraint("run_id", "config_text", name="uq_trials_run_id_config_text"),
    )
    op.create_table(
        "transfers",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("from_answer_id", sa.Integer(), nullable=False),
        sa.Column("distance", sa.Double(), nullable=False),
        sa.Column("slowdown", sa.Double(), nullable=False),
        sa.Column("created_at", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["from_answer_id"], ["answers.id"], name="fk_transfers_from_answer_id"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_transfers_run_id"),
        sa.PrimaryKeyConstraint("id", name="pk_transfers"),
        sa.UniqueConstraint("run_id", "from_answer_id", name="uq_transfers_run_id_from_answer_id"),
    )
