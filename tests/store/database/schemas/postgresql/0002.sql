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
    owner_process character varying(120)
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

INSERT INTO public.commands VALUES (1, 1, 1795223234.5162709, 'stop', '{"trial": 0}');

INSERT INTO public.energy VALUES (1, 0, 7200, NULL);

INSERT INTO public.events VALUES (1, 1, 1000, 'run_state_changed', NULL, '{"time_unix_s":1000.0,"type":"run_state_changed","state":"running","reason":null,"message":null}');
INSERT INTO public.events VALUES (1, 2, 1001.5, 'trial_reported', 0, '{"time_unix_s":1001.5,"trial":0,"type":"trial_reported","attempt":0,"step":3,"epoch":null,"elapsed_s":0.0,"values":{"loss":"NaN"},"samples_per_s":null,"parts_s":{}}');
INSERT INTO public.events VALUES (1, 3, 1002, 'trial_ended', 0, '{"time_unix_s":1002.0,"trial":0,"type":"trial_ended","attempt":0,"state":"complete","reason":null,"message":null,"traceback":null,"values":{"val_accuracy":0.5},"step":0}');
INSERT INTO public.events VALUES (1, 4, 1003, 'run_state_changed', NULL, '{"time_unix_s":1003.0,"type":"run_state_changed","state":"complete","reason":null,"message":null}');

INSERT INTO public.runs VALUES (1, 'frozen-1', 'frozen', '{"name":"frozen","model":"convnet","data":"digits","objectives":[{"metric":"val_accuracy","goal":"maximize"}],"search":{"lr":{"log":true,"low":0.0001,"high":1.0}}}', '996701c2d96e0dbb3d6aba70f3a00e2f58df07ecfb4f83991236bfd21e67f7f9', 1795223234.507364, 'complete', 1003, 4, 1, NULL, 15, 1795329684.6433594, 4242, 'old-machine', NULL);

INSERT INTO public.samples VALUES (1, 0, 1002.5, 'node-a', '{"mean":{"machine":{"host":"old-machine","num_cpus":2,"memory_bytes":1024},"time_unix_s":1002.5}}');

INSERT INTO public.workbench_schema VALUES ('0002');

SELECT pg_catalog.setval('public.runs_key_seq', 1, true);

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

ALTER TABLE ONLY public.commands
    ADD CONSTRAINT commands_run_key_fkey FOREIGN KEY (run_key) REFERENCES public.runs(key);

ALTER TABLE ONLY public.energy
    ADD CONSTRAINT energy_run_key_fkey FOREIGN KEY (run_key) REFERENCES public.runs(key);

ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_run_key_fkey FOREIGN KEY (run_key) REFERENCES public.runs(key);

ALTER TABLE ONLY public.samples
    ADD CONSTRAINT samples_run_key_fkey FOREIGN KEY (run_key) REFERENCES public.runs(key);
