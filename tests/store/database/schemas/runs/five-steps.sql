BEGIN TRANSACTION;
CREATE TABLE blocks (
	run_key INTEGER NOT NULL, 
	first_seq BIGINT NOT NULL, 
	last_seq BIGINT NOT NULL, 
	payload BLOB NOT NULL, 
	PRIMARY KEY (run_key, first_seq), 
	FOREIGN KEY(run_key) REFERENCES runs ("key")
);
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
CREATE TABLE energy (
	run_key INTEGER NOT NULL, 
	trial INTEGER NOT NULL, 
	gpu_j DOUBLE, 
	cpu_j DOUBLE, 
	PRIMARY KEY (run_key, trial), 
	FOREIGN KEY(run_key) REFERENCES runs ("key")
)
 WITHOUT ROWID

;
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
INSERT INTO "events" VALUES(1,1,1.79587696945622539521e+09,'driver_started',NULL,'{"time_unix_s":1795876969.4562254,"type":"driver_started","pid":12601,"host":"old-machine","num_cpus":2.0,"num_gpus":0.0,"versions":{"python":"3.11.7","torch":"2.13.0+cpu","ray":"2.60.0","optuna":"5.0.0","numpy":"2.4.6"},"errors_in_unit_of_target":true,"before_unix_s":null}');
INSERT INTO "events" VALUES(1,2,1.7958769694562678337e+09,'run_state_changed',NULL,'{"time_unix_s":1795876969.4562678,"type":"run_state_changed","state":"running","reason":null,"message":null}');
INSERT INTO "events" VALUES(1,3,1.79587696984184455864e+09,'program_kept',NULL,'{"time_unix_s":1795876969.8418446,"type":"program_kept","version":1,"code_sha256":"4eeeec6755631df03afa7400b364e3c868b912a8caca75010cc5734af9a13288","num_files":988,"why":"start","changed":[],"continued":[]}');
INSERT INTO "events" VALUES(1,4,1.79587697019381809229e+09,'trial_proposed',0,'{"time_unix_s":1795876970.193818,"trial":0,"type":"trial_proposed","params":{"x":1.407439457775908,"kind":"a"},"configuration":0,"repeat":0,"seed":2663187255,"source":"sampler","choosing_s":0.0012026240001432598,"segment":null,"resumes":null,"fidelity":null}');
INSERT INTO "events" VALUES(1,5,1.79587697023297834398e+09,'trial_proposed',1,'{"time_unix_s":1795876970.2329783,"trial":1,"type":"trial_proposed","params":{"x":0.42695012276267974,"kind":"b"},"configuration":1,"repeat":0,"seed":2663187255,"source":"sampler","choosing_s":0.0010333729987905826,"segment":null,"resumes":null,"fidelity":null}');
INSERT INTO "events" VALUES(1,6,1.79587698523703122137e+09,'trial_started',0,'{"time_unix_s":1795876985.2370312,"trial":0,"type":"trial_started","attempt":0,"worker_pids":[13058],"hosts":["old-machine"],"nodes":["a3a1d60bbbb194adb49facf5f01f865a99be0d87261e039ebf0e9d1b"],"gpus":[[]],"plan":{"workers":1},"resumed_from":null,"program":1}');
INSERT INTO "events" VALUES(1,7,1.79587698541071629529e+09,'trial_reported',0,'{"time_unix_s":1795876985.4107163,"trial":0,"type":"trial_reported","attempt":0,"step":1,"epoch":null,"elapsed_s":0.0002701009980228264,"values":{"loss":1.1660069117527259,"extra":1.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,8,1.79587698541086888308e+09,'trial_reported',0,'{"time_unix_s":1795876985.410869,"trial":0,"type":"trial_reported","attempt":0,"step":2,"epoch":null,"elapsed_s":0.0004407540000102017,"values":{"loss":0.6660069117527259,"extra":2.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,9,1.79587698541092109687e+09,'trial_reported',0,'{"time_unix_s":1795876985.410921,"trial":0,"type":"trial_reported","attempt":0,"step":3,"epoch":null,"elapsed_s":0.0004940229991916567,"values":{"loss":0.49934024508605923,"extra":3.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,10,1.79587698541099429136e+09,'trial_ended',0,'{"time_unix_s":1795876985.4109943,"trial":0,"type":"trial_ended","attempt":0,"state":"complete","reason":null,"message":null,"traceback":null,"values":{"loss":0.49934024508605923,"extra":3.0},"step":3,"fits":true,"is_unreported":false}');
INSERT INTO "events" VALUES(1,11,1.79587698542391014091e+09,'trial_proposed',2,'{"time_unix_s":1795876985.4239101,"trial":2,"type":"trial_proposed","params":{"x":-0.553539212250552,"kind":"a"},"configuration":2,"repeat":0,"seed":2663187255,"source":"sampler","choosing_s":0.0008093100004771259,"segment":null,"resumes":null,"fidelity":null}');
INSERT INTO "events" VALUES(1,12,1.79587698517534732813e+09,'trial_started',1,'{"time_unix_s":1795876985.1753473,"trial":1,"type":"trial_started","attempt":0,"worker_pids":[13056],"hosts":["old-machine"],"nodes":["a3a1d60bbbb194adb49facf5f01f865a99be0d87261e039ebf0e9d1b"],"gpus":[[]],"plan":{"workers":1},"resumed_from":null,"program":1}');
INSERT INTO "events" VALUES(1,13,1.7958769853890757561e+09,'trial_reported',1,'{"time_unix_s":1795876985.3890758,"trial":1,"type":"trial_reported","attempt":0,"step":1,"epoch":null,"elapsed_s":0.00016412299737567082,"values":{"loss":1.3283861618017079,"extra":1.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,14,1.79587698540667748455e+09,'trial_reported',1,'{"time_unix_s":1795876985.4066775,"trial":1,"type":"trial_reported","attempt":0,"step":2,"epoch":null,"elapsed_s":0.017764225998689653,"values":{"loss":0.8283861618017079,"extra":2.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,15,1.79587698540684676169e+09,'trial_reported',1,'{"time_unix_s":1795876985.4068468,"trial":1,"type":"trial_reported","attempt":0,"step":3,"epoch":null,"elapsed_s":0.017950632998690708,"values":{"loss":0.6617194951350411,"extra":3.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,16,1795876985.40696,'trial_ended',1,'{"time_unix_s":1795876985.40696,"trial":1,"type":"trial_ended","attempt":0,"state":"complete","reason":null,"message":null,"traceback":null,"values":{"loss":0.6617194951350411,"extra":3.0},"step":3,"fits":true,"is_unreported":false}');
INSERT INTO "events" VALUES(1,17,1.79587698542939472193e+09,'trial_proposed',3,'{"time_unix_s":1795876985.4293947,"trial":3,"type":"trial_proposed","params":{"x":2.4659714527362198,"kind":"b"},"configuration":3,"repeat":0,"seed":2663187255,"source":"sampler","choosing_s":0.0006564840005012229,"segment":null,"resumes":null,"fidelity":null}');
INSERT INTO "events" VALUES(1,18,1.79587698542818808558e+09,'trial_started',2,'{"time_unix_s":1795876985.428188,"trial":2,"type":"trial_started","attempt":0,"worker_pids":[13058],"hosts":["old-machine"],"nodes":["a3a1d60bbbb194adb49facf5f01f865a99be0d87261e039ebf0e9d1b"],"gpus":[[]],"plan":{"workers":1},"resumed_from":null,"program":1}');
INSERT INTO "events" VALUES(1,19,1.79587698543132519724e+09,'trial_reported',2,'{"time_unix_s":1795876985.4313252,"trial":2,"type":"trial_reported","attempt":0,"step":1,"epoch":null,"elapsed_s":0.00016476399832754396,"values":{"loss":3.4134840840000655,"extra":1.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,20,1.79587698543142056462e+09,'trial_reported',2,'{"time_unix_s":1795876985.4314206,"trial":2,"type":"trial_reported","attempt":0,"step":2,"epoch":null,"elapsed_s":0.00027641999986371957,"values":{"loss":2.9134840840000655,"extra":2.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,21,1.79587698543150496481e+09,'trial_reported',2,'{"time_unix_s":1795876985.431505,"trial":2,"type":"trial_reported","attempt":0,"step":3,"epoch":null,"elapsed_s":0.0003603139994083904,"values":{"loss":2.746817417333399,"extra":3.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,22,1.79587698543306112288e+09,'trial_ended',2,'{"time_unix_s":1795876985.4330611,"trial":2,"type":"trial_ended","attempt":0,"state":"failed","reason":"error","message":"ValueError: too small: -0.553539212250552","traceback":"Traceback (most recent call last):\n  File \"/home/me/old_train.py\", line 7, in train\n    raise ValueError(\"too small: %r\" % config[\"x\"])\nValueError: too small: -0.553539212250552\n","values":{"loss":2.746817417333399,"extra":3.0},"step":3,"fits":true,"is_unreported":false}');
INSERT INTO "events" VALUES(1,23,1.79587698549248838426e+09,'trial_proposed',4,'{"time_unix_s":1795876985.4924884,"trial":4,"type":"trial_proposed","params":{"x":1.4854821177229915,"kind":"a"},"configuration":4,"repeat":0,"seed":2663187255,"source":"sampler","choosing_s":0.0006970739996177144,"segment":null,"resumes":null,"fidelity":null}');
INSERT INTO "events" VALUES(1,24,1.79587698543222784998e+09,'trial_started',3,'{"time_unix_s":1795876985.4322278,"trial":3,"type":"trial_started","attempt":0,"worker_pids":[13056],"hosts":["old-machine"],"nodes":["a3a1d60bbbb194adb49facf5f01f865a99be0d87261e039ebf0e9d1b"],"gpus":[[]],"plan":{"workers":1},"resumed_from":null,"program":1}');
INSERT INTO "events" VALUES(1,25,1.79587698543553662307e+09,'trial_reported',3,'{"time_unix_s":1795876985.4355366,"trial":3,"type":"trial_reported","attempt":0,"step":1,"epoch":null,"elapsed_s":0.00017533999925944954,"values":{"loss":3.1490723002375427,"extra":1.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,26,1.79587698543564915662e+09,'trial_reported',3,'{"time_unix_s":1795876985.4356492,"trial":3,"type":"trial_reported","attempt":0,"step":2,"epoch":null,"elapsed_s":0.00030540299849235453,"values":{"loss":2.6490723002375427,"extra":2.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,27,1.79587698543570876115e+09,'trial_reported',3,'{"time_unix_s":1795876985.4357088,"trial":3,"type":"trial_reported","attempt":0,"step":3,"epoch":null,"elapsed_s":0.0003648409983725287,"values":{"loss":2.482405633570876,"extra":3.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,28,1.79587698543579745292e+09,'trial_ended',3,'{"time_unix_s":1795876985.4357975,"trial":3,"type":"trial_ended","attempt":0,"state":"complete","reason":null,"message":null,"traceback":null,"values":{"loss":2.482405633570876,"extra":3.0},"step":3,"fits":true,"is_unreported":false}');
INSERT INTO "events" VALUES(1,29,1795876985.49534,'trial_proposed',5,'{"time_unix_s":1795876985.49534,"trial":5,"type":"trial_proposed","params":{"x":0.5049927827097598,"kind":"b"},"configuration":5,"repeat":0,"seed":2663187255,"source":"sampler","choosing_s":0.0005401910020736977,"segment":null,"resumes":null,"fidelity":null}');
INSERT INTO "events" VALUES(1,30,1.79587698549552035329e+09,'trial_started',4,'{"time_unix_s":1795876985.4955204,"trial":4,"type":"trial_started","attempt":0,"worker_pids":[13058],"hosts":["old-machine"],"nodes":["a3a1d60bbbb194adb49facf5f01f865a99be0d87261e039ebf0e9d1b"],"gpus":[[]],"plan":{"workers":1},"resumed_from":null,"program":1}');
INSERT INTO "events" VALUES(1,31,1.79587698549764633181e+09,'trial_reported',4,'{"time_unix_s":1795876985.4976463,"trial":4,"type":"trial_reported","attempt":0,"step":1,"epoch":null,"elapsed_s":0.00023040200176183134,"values":{"loss":1.2356928866288006,"extra":1.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,32,1.7958769854977691174e+09,'trial_reported',4,'{"time_unix_s":1795876985.497769,"trial":4,"type":"trial_reported","attempt":0,"step":2,"epoch":null,"elapsed_s":0.0003685570009110961,"values":{"loss":0.7356928866288006,"extra":2.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,33,1795876985.49785,'trial_reported',4,'{"time_unix_s":1795876985.49785,"trial":4,"type":"trial_reported","attempt":0,"step":3,"epoch":null,"elapsed_s":0.0004495470020629,"values":{"loss":0.5690262199621339,"extra":3.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,34,1.79587698549793958659e+09,'trial_ended',4,'{"time_unix_s":1795876985.4979396,"trial":4,"type":"trial_ended","attempt":0,"state":"complete","reason":null,"message":null,"traceback":null,"values":{"loss":0.5690262199621339,"extra":3.0},"step":3,"fits":true,"is_unreported":false}');
INSERT INTO "events" VALUES(1,35,1.79587698550222945215e+09,'trial_started',5,'{"time_unix_s":1795876985.5022295,"trial":5,"type":"trial_started","attempt":0,"worker_pids":[13056],"hosts":["old-machine"],"nodes":["a3a1d60bbbb194adb49facf5f01f865a99be0d87261e039ebf0e9d1b"],"gpus":[[]],"plan":{"workers":1},"resumed_from":null,"program":1}');
INSERT INTO "events" VALUES(1,36,1795876985.50417,'trial_reported',5,'{"time_unix_s":1795876985.50417,"trial":5,"type":"trial_reported","attempt":0,"step":1,"epoch":null,"elapsed_s":0.0002417680007056333,"values":{"loss":1.245032145169427,"extra":1.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,37,1795876985.50427,'trial_reported',5,'{"time_unix_s":1795876985.50427,"trial":5,"type":"trial_reported","attempt":0,"step":2,"epoch":null,"elapsed_s":0.00035742000181926414,"values":{"loss":0.7450321451694271,"extra":2.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,38,1.79587698550431776054e+09,'trial_reported',5,'{"time_unix_s":1795876985.5043178,"trial":5,"type":"trial_reported","attempt":0,"step":3,"epoch":null,"elapsed_s":0.00040537099994253367,"values":{"loss":0.5783654785027604,"extra":3.0},"samples_per_s":null,"parts_s":{},"compile_s":null,"slowest_rank":null,"slowest_rank_factor":null,"gradient_signal_sqr":null,"gradient_noise":null,"memory_share":null,"returned":false,"told_again":false,"left_out":0}');
INSERT INTO "events" VALUES(1,39,1.79587698550438213352e+09,'trial_ended',5,'{"time_unix_s":1795876985.5043821,"trial":5,"type":"trial_ended","attempt":0,"state":"complete","reason":null,"message":null,"traceback":null,"values":{"loss":0.5783654785027604,"extra":3.0},"step":3,"fits":true,"is_unreported":false}');
INSERT INTO "events" VALUES(1,40,1.79587698553689408299e+09,'run_state_changed',NULL,'{"time_unix_s":1795876985.536894,"type":"run_state_changed","state":"complete","reason":"trials","message":"all 6 configurations of its budget were tried"}');
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
	owner_process VARCHAR(120), tags TEXT, notes TEXT, pinned_unix_s DOUBLE, archived_unix_s DOUBLE, chosen_trial INTEGER, 
	PRIMARY KEY ("key"), 
	UNIQUE (run_id)
);
INSERT INTO "runs" VALUES(1,'five-migrations-1','five-migrations','{"sampler": {"name": "auto"}, "name": "five-migrations", "train": "old_train:train", "objectives": [{"metric": "loss", "goal": "minimize"}], "search": {"x": {"type": "float", "low": -1.0, "high": 3.0}, "kind": {"choices": ["a", "b"]}}, "budget": {"trials": 6}, "resources": {"concurrency": 2}, "seed": 3}','326cbbf5b3fdda5e92138435e17fbe609c5af3f7bc8af9ed184a514765ecae2d',1.79587695816231465335e+09,'complete',1.79587698553689408299e+09,0,0,NULL,15.0,1.7958769855375201702e+09,12601,'old-machine','c0503296-3be2-4841-8f09-df4ae0e40eb1 pid:[4026531836] 3118104',NULL,NULL,NULL,NULL,NULL);
CREATE TABLE samples (
	run_key INTEGER NOT NULL, 
	span_s INTEGER NOT NULL, 
	time DOUBLE NOT NULL, 
	node VARCHAR(80) NOT NULL, 
	payload TEXT NOT NULL, 
	PRIMARY KEY (run_key, span_s, time, node), 
	FOREIGN KEY(run_key) REFERENCES runs ("key")
)
 WITHOUT ROWID

;
CREATE TABLE workbench_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT workbench_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "workbench_schema" VALUES('0005');
COMMIT;
