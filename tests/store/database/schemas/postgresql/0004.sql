CREATE TABLE public.blocks (
    run_key integer NOT NULL,
    first_seq bigint NOT NULL,
    last_seq bigint NOT NULL,
    payload bytea NOT NULL
);
ALTER TABLE ONLY public.blocks ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE public.commands (
    run_key integer NOT NULL,
    number integer NOT NULL,
    "time" double precision NOT NULL,
    kind character varying(40) NOT NULL,
    arguments text NOT NULL
);

CREATE TABLE public.energy (
    run_key integer NOT NULL,
    trial integer NOT NULL,
    gpu_j double precision,
    cpu_j double precision
);

CREATE TABLE public.events (
    run_key integer NOT NULL,
    seq bigint NOT NULL,
    "time" double precision NOT NULL,
    type character varying(40) NOT NULL,
    trial integer,
    payload text NOT NULL
);

CREATE TABLE public.runs (
    key integer NOT NULL,
    run_id character varying(120) NOT NULL,
    name character varying(80) NOT NULL,
    experiment text NOT NULL,
    experiment_hash character varying(64) NOT NULL,
    created_unix_s double precision NOT NULL,
    state character varying(16) NOT NULL,
    changed_unix_s double precision NOT NULL,
    last_seq bigint NOT NULL,
    last_command integer NOT NULL,
    lease_token character varying(32),
    lease_timeout_s double precision,
    heartbeat_unix_s double precision,
    owner_pid integer,
    owner_host character varying(255),
    owner_process character varying(120),
    tags text,
    notes text,
    pinned_unix_s double precision,
    archived_unix_s double precision
);

CREATE SEQUENCE public.runs_key_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

ALTER SEQUENCE public.runs_key_seq OWNED BY public.runs.key;

CREATE TABLE public.samples (
    run_key integer NOT NULL,
    span_s integer NOT NULL,
    "time" double precision NOT NULL,
    node character varying(80) NOT NULL,
    payload text NOT NULL
);

CREATE TABLE public.workbench_schema (
    version_num character varying(32) NOT NULL
);

ALTER TABLE ONLY public.runs ALTER COLUMN key SET DEFAULT nextval('public.runs_key_seq'::regclass);

INSERT INTO public.blocks VALUES (1, 1, 4, '\xb60100007b2276657273696f6e223a312c226c6173745f756e69785f73223a313030332e302c226f7468657273223a5b5b302c6e756c6c2c315d2c5b312c302c335d2c5b312c6e756c6c2c345d5d2c22636f6c756d6e73223a7b226e756d62657273223a5b5b2273746570222c747275655d2c5b2265706f6368222c66616c73655d2c5b2274696d655f756e69785f73222c747275655d2c5b2273616d706c65735f7065725f73222c66616c73655d2c5b226772616469656e745f7369676e616c5f737172222c66616c73655d2c5b226772616469656e745f6e6f697365222c66616c73655d2c5b226c6566745f6f7574222c66616c73655d2c5b22736c6f776573745f72616e6b222c66616c73655d2c5b22736c6f776573745f72616e6b5f666163746f72222c66616c73655d5d2c2276616c756573223a5b5b226c6f7373222c747275655d5d2c2270617274735f73223a5b5d7d2c22747269616c73223a5b305d2c22636f756e7473223a5b315d2c22617272617973223a5b5b227c6931222c315d2c5b227c6931222c315d2c5b223c6638222c315d2c5b223c6638222c315d2c5b223c6638222c315d2c5b227c7531222c3336345d5d7d0000000000000000084000000000004c8f40000000000000f87f7b2274696d655f756e69785f73223a313030302e302c2274797065223a2272756e5f73746174655f6368616e676564222c227374617465223a2272756e6e696e67222c22726561736f6e223a6e756c6c2c226d657373616765223a6e756c6c7d0a7b2274696d655f756e69785f73223a313030322e302c22747269616c223a302c2274797065223a22747269616c5f656e646564222c22617474656d7074223a302c227374617465223a22636f6d706c657465222c22726561736f6e223a6e756c6c2c226d657373616765223a6e756c6c2c2274726163656261636b223a6e756c6c2c2276616c756573223a7b2276616c5f6163637572616379223a302e357d2c2273746570223a307d0a7b2274696d655f756e69785f73223a313030332e302c2274797065223a2272756e5f73746174655f6368616e676564222c227374617465223a22636f6d706c657465222c22726561736f6e223a6e756c6c2c226d657373616765223a6e756c6c7d');

INSERT INTO public.commands VALUES (1, 1, 1795223234.5162709, 'stop', '{"trial": 0}');

INSERT INTO public.energy VALUES (1, 0, 7200, NULL);

INSERT INTO public.events VALUES (1, 1, 1000, 'run_state_changed', NULL, '{"time_unix_s":1000.0,"type":"run_state_changed","state":"running","reason":null,"message":null}');
INSERT INTO public.events VALUES (1, 2, 1001.5, 'trial_reported', 0, '{"time_unix_s":1001.5,"trial":0,"type":"trial_reported","attempt":0,"step":3,"epoch":null,"elapsed_s":0.0,"values":{"loss":"NaN"},"samples_per_s":null,"parts_s":{}}');
INSERT INTO public.events VALUES (1, 3, 1002, 'trial_ended', 0, '{"time_unix_s":1002.0,"trial":0,"type":"trial_ended","attempt":0,"state":"complete","reason":null,"message":null,"traceback":null,"values":{"val_accuracy":0.5},"step":0}');
INSERT INTO public.events VALUES (1, 4, 1003, 'run_state_changed', NULL, '{"time_unix_s":1003.0,"type":"run_state_changed","state":"complete","reason":null,"message":null}');

INSERT INTO public.runs VALUES (1, 'frozen-1', 'frozen', '{"name":"frozen","model":"convnet","data":"digits","objectives":[{"metric":"val_accuracy","goal":"maximize"}],"search":{"lr":{"log":true,"low":0.0001,"high":1.0}}}', '996701c2d96e0dbb3d6aba70f3a00e2f58df07ecfb4f83991236bfd21e67f7f9', 1795223234.507364, 'complete', 1003, 4, 1, NULL, 15, 1795578420.015392, 4242, 'old-machine', NULL, '["old", "kept"]', 'From before.
Two lines.', 1004, NULL);

INSERT INTO public.samples VALUES (1, 0, 1002.5, 'node-a', '{"mean":{"machine":{"host":"old-machine","num_cpus":2,"memory_bytes":1024},"time_unix_s":1002.5}}');

INSERT INTO public.workbench_schema VALUES ('0004');

SELECT pg_catalog.setval('public.runs_key_seq', 1, true);

ALTER TABLE ONLY public.blocks
    ADD CONSTRAINT blocks_pkey PRIMARY KEY (run_key, first_seq);

ALTER TABLE ONLY public.commands
    ADD CONSTRAINT commands_pkey PRIMARY KEY (run_key, number);

ALTER TABLE ONLY public.energy
    ADD CONSTRAINT energy_pkey PRIMARY KEY (run_key, trial);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (run_key, seq);

ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (key);

ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_run_id_key UNIQUE (run_id);

ALTER TABLE ONLY public.samples
    ADD CONSTRAINT samples_pkey PRIMARY KEY (run_key, span_s, "time", node);

ALTER TABLE ONLY public.workbench_schema
    ADD CONSTRAINT workbench_schema_pkc PRIMARY KEY (version_num);

ALTER TABLE ONLY public.blocks
    ADD CONSTRAINT blocks_run_key_fkey FOREIGN KEY (run_key) REFERENCES public.runs(key);

ALTER TABLE ONLY public.commands
    ADD CONSTRAINT commands_run_key_fkey FOREIGN KEY (run_key) REFERENCES public.runs(key);

ALTER TABLE ONLY public.energy
    ADD CONSTRAINT energy_run_key_fkey FOREIGN KEY (run_key) REFERENCES public.runs(key);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_run_key_fkey FOREIGN KEY (run_key) REFERENCES public.runs(key);

ALTER TABLE ONLY public.samples
    ADD CONSTRAINT samples_run_key_fkey FOREIGN KEY (run_key) REFERENCES public.runs(key);
