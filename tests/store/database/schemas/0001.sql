BEGIN TRANSACTION;
CREATE TABLE commands (
	run_key INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	time DOUBLE NOT NULL, 
	kind VARCHAR(40) NOT NULL, 
	arguments TEXT NOT NULL, 
	PRIMARY KEY (run_key, number), 
	FOREIGN KEY(run_key) REFERENCES runs ("key")
)
 WITHOUT ROWID

;
INSERT INTO "commands" VALUES(1,1,1.79522323451627087596e+09,'stop','{"trial": 0}');
CREATE TABLE events (
	run_key INTEGER NOT NULL, 
	seq BIGINT NOT NULL, 
	time DOUBLE NOT NULL, 
	type VARCHAR(40) NOT NULL, 
	trial INTEGER, 
	payload TEXT NOT NULL, 
	PRIMARY KEY (run_key, seq), 
	FOREIGN KEY(run_key) REFERENCES runs ("key")
)
 WITHOUT ROWID

;
INSERT INTO "events" VALUES(1,1,1000.0,'run_state_changed',NULL,'{"time_unix_s":1000.0,"type":"run_state_changed","state":"running","reason":null,"message":null}');
INSERT INTO "events" VALUES(1,2,1001.5,'trial_reported',0,'{"time_unix_s":1001.5,"trial":0,"type":"trial_reported","attempt":0,"step":3,"epoch":null,"elapsed_s":0.0,"values":{"loss":"NaN"},"samples_per_s":null,"parts_s":{}}');
INSERT INTO "events" VALUES(1,3,1002.0,'trial_ended',0,'{"time_unix_s":1002.0,"trial":0,"type":"trial_ended","attempt":0,"state":"complete","reason":null,"message":null,"traceback":null,"values":{"val_accuracy":0.5},"step":0}');
INSERT INTO "events" VALUES(1,4,1003.0,'run_state_changed',NULL,'{"time_unix_s":1003.0,"type":"run_state_changed","state":"complete","reason":null,"message":null}');
CREATE TABLE runs (
	"key" INTEGER NOT NULL, 
	run_id VARCHAR(120) NOT NULL, 
	name VARCHAR(80) NOT NULL, 
	experiment TEXT NOT NULL, 
	experiment_hash VARCHAR(64) NOT NULL, 
	created_unix_s DOUBLE NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	changed_unix_s DOUBLE NOT NULL, 
	last_seq BIGINT NOT NULL, 
	last_command INTEGER NOT NULL, 
	lease_token VARCHAR(32), 
	lease_timeout_s DOUBLE, 
	heartbeat_unix_s DOUBLE, 
	owner_pid INTEGER, 
	owner_host VARCHAR(255), 
	owner_process VARCHAR(120), 
	PRIMARY KEY ("key"), 
	UNIQUE (run_id)
);
INSERT INTO "runs" VALUES(1,'frozen-1','frozen','{"name":"frozen","model":"convnet","data":"digits","objectives":[{"metric":"val_accuracy","goal":"maximize"}],"search":{"lr":{"log":true,"low":0.0001,"high":1.0}}}','996701c2d96e0dbb3d6aba70f3a00e2f58df07ecfb4f83991236bfd21e67f7f9',1.79522323450736403464e+09,'complete',1003.0,4,1,NULL,15.0,1.79522323451471900943e+09,4242,'old-machine',NULL);
CREATE TABLE workbench_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT workbench_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "workbench_schema" VALUES('0001');
COMMIT;
