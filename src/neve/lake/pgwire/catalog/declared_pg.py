"""Columns of the tables of `pg_catalog` in PostgreSQL 15.

A line without indent is the name of a table; the indented lines below it list its columns as
`name:type`. The default type is text.
"""

from __future__ import annotations

DECLARED = """
pg_aggregate
  aggfnoid aggkind:char aggnumdirectargs:int2 aggtransfn aggfinalfn aggcombinefn aggserialfn
  aggdeserialfn aggmtransfn aggminvtransfn aggmfinalfn aggfinalextra:bool aggmfinalextra:bool
  aggfinalmodify:char aggmfinalmodify:char aggsortop:oid aggtranstype:oid aggtransspace:int4
  aggmtranstype:oid aggmtransspace:int4 agginitval aggminitval
pg_am
  oid:oid amname:name amhandler amtype:char
pg_attrdef
  oid:oid adrelid:oid adnum:int2 adbin
pg_attribute
  attrelid:oid attname:name atttypid:oid attstattarget:int4 attlen:int2 attnum:int2
  attndims:int4 attcacheoff:int4 atttypmod:int4 attbyval:bool attalign:char attstorage:char
  attcompression:char attnotnull:bool atthasdef:bool atthasmissing:bool attidentity:char
  attgenerated:char attisdropped:bool attislocal:bool attinhcount:int4 attcollation:oid
  attacl:_text attoptions:_text attfdwoptions:_text attmissingval:_text
pg_auth_members
  roleid:oid member:oid grantor:oid admin_option:bool
pg_authid
  oid:oid rolname:name rolsuper:bool rolinherit:bool rolcreaterole:bool rolcreatedb:bool
  rolcanlogin:bool rolreplication:bool rolbypassrls:bool rolconnlimit:int4 rolpassword
  rolvaliduntil:timestamptz
pg_available_extensions
  name:name default_version installed_version comment
pg_cast
  oid:oid castsource:oid casttarget:oid castfunc:oid castcontext:char castmethod:char
pg_class
  oid:oid relname:name relnamespace:oid reltype:oid reloftype:oid relowner:oid relam:oid
  relfilenode:oid reltablespace:oid relpages:int4 reltuples:float4 relallvisible:int4
  reltoastrelid:oid relhasindex:bool relisshared:bool relpersistence:char relkind:char
  relnatts:int2 relchecks:int2 relhasrules:bool relhastriggers:bool relhassubclass:bool
  relrowsecurity:bool relforcerowsecurity:bool relispopulated:bool relreplident:char
  relispartition:bool relrewrite:oid relfrozenxid:xid relminmxid:xid relacl:_text
  reloptions:_text relpartbound
pg_collation
  oid:oid collname:name collnamespace:oid collowner:oid collprovider:char
  collisdeterministic:bool collencoding:int4 collcollate collctype colliculocale collversion
pg_constraint
  oid:oid conname:name connamespace:oid contype:char condeferrable:bool condeferred:bool
  convalidated:bool conrelid:oid contypid:oid conindid:oid conparentid:oid confrelid:oid
  confupdtype:char confdeltype:char confmatchtype:char conislocal:bool coninhcount:int4
  connoinherit:bool conkey:_int2 confkey:_int2 conpfeqop:_oid conppeqop:_oid conffeqop:_oid
  confdelsetcols:_int2 conexclop:_oid conbin
pg_cursors
  name statement is_holdable:bool is_binary:bool is_scrollable:bool creation_time:timestamptz
pg_database
  oid:oid datname:name datdba:oid encoding:int4 datlocprovider:char datistemplate:bool
  datallowconn:bool datconnlimit:int4 datfrozenxid:xid datminmxid:xid dattablespace:oid
  datcollate datctype daticulocale datcollversion datacl:_text
pg_db_role_setting
  setdatabase:oid setrole:oid setconfig:_text
pg_default_acl
  oid:oid defaclrole:oid defaclnamespace:oid defaclobjtype:char defaclacl:_text
pg_depend
  classid:oid objid:oid objsubid:int4 refclassid:oid refobjid:oid refobjsubid:int4 deptype:char
pg_description
  objoid:oid classoid:oid objsubid:int4 description
pg_enum
  oid:oid enumtypid:oid enumsortorder:float4 enumlabel:name
pg_extension
  oid:oid extname:name extowner:oid extnamespace:oid extrelocatable:bool extversion
  extconfig:_oid extcondition:_text
pg_foreign_data_wrapper
  oid:oid fdwname:name fdwowner:oid fdwhandler:oid fdwvalidator:oid fdwacl:_text
  fdwoptions:_text
pg_foreign_server
  oid:oid srvname:name srvowner:oid srvfdw:oid srvtype srvversion srvacl:_text srvoptions:_text
pg_foreign_table
  ftrelid:oid ftserver:oid ftoptions:_text
pg_index
  indexrelid:oid indrelid:oid indnatts:int2 indnkeyatts:int2 indisunique:bool
  indnullsnotdistinct:bool indisprimary:bool indisexclusion:bool indimmediate:bool
  indisclustered:bool indisvalid:bool indcheckxmin:bool indisready:bool indislive:bool
  indisreplident:bool indkey:int2vector indcollation:oidvector indclass:oidvector
  indoption:int2vector indexprs indpred
pg_indexes
  schemaname:name tablename:name indexname:name tablespace:name indexdef
pg_get_keywords
  word catcode:char barelabel:bool catdesc baredesc
pg_inherits
  inhrelid:oid inhparent:oid inhseqno:int4 inhdetachpending:bool
pg_language
  oid:oid lanname:name lanowner:oid lanispl:bool lanpltrusted:bool lanplcallfoid:oid
  laninline:oid lanvalidator:oid lanacl:_text
pg_locks
  locktype database:oid relation:oid page:int4 tuple:int2 virtualxid transactionid:xid
  classid:oid objid:oid objsubid:int2 virtualtransaction pid:int4 mode granted:bool
  fastpath:bool waitstart:timestamptz
pg_matviews
  schemaname:name matviewname:name matviewowner:name tablespace:name hasindexes:bool
  ispopulated:bool definition
pg_namespace
  oid:oid nspname:name nspowner:oid nspacl:_text
pg_opclass
  oid:oid opcmethod:oid opcname:name opcnamespace:oid opcowner:oid opcfamily:oid opcintype:oid
  opcdefault:bool opckeytype:oid
pg_operator
  oid:oid oprname:name oprnamespace:oid oprowner:oid oprkind:char oprcanmerge:bool
  oprcanhash:bool oprleft:oid oprright:oid oprresult:oid oprcom:oid oprnegate:oid oprcode
  oprrest oprjoin
pg_opfamily
  oid:oid opfmethod:oid opfname:name opfnamespace:oid opfowner:oid
pg_partitioned_table
  partrelid:oid partstrat:char partnatts:int2 partdefid:oid partattrs:int2vector
  partclass:oidvector partcollation:oidvector partexprs
pg_policies
  schemaname:name tablename:name policyname:name permissive roles:_name cmd qual with_check
pg_policy
  oid:oid polname:name polrelid:oid polcmd:char polpermissive:bool polroles:_oid polqual
  polwithcheck
pg_prepared_statements
  name statement prepare_time:timestamptz parameter_types:_oid from_sql:bool generic_plans:int8
  custom_plans:int8
pg_proc
  oid:oid proname:name pronamespace:oid proowner:oid prolang:oid procost:float4 prorows:float4
  provariadic:oid prosupport prokind:char prosecdef:bool proleakproof:bool proisstrict:bool
  proretset:bool provolatile:char proparallel:char pronargs:int2 pronargdefaults:int2
  prorettype:oid proargtypes:oidvector proallargtypes:_oid proargmodes:_char proargnames:_text
  proargdefaults protrftypes:_oid prosrc probin prosqlbody proconfig:_text proacl:_text
pg_publication
  oid:oid pubname:name pubowner:oid puballtables:bool pubinsert:bool pubupdate:bool
  pubdelete:bool pubtruncate:bool pubviaroot:bool
pg_publication_namespace
  oid:oid pnpubid:oid pnnspid:oid
pg_publication_rel
  oid:oid prpubid:oid prrelid:oid prqual prattrs:int2vector
pg_range
  rngtypid:oid rngsubtype:oid rngmultitypid:oid rngcollation:oid rngsubopc:oid rngcanonical
  rngsubdiff
pg_rewrite
  oid:oid rulename:name ev_class:oid ev_type:char ev_enabled:char is_instead:bool ev_qual
  ev_action
pg_roles
  rolname:name rolsuper:bool rolinherit:bool rolcreaterole:bool rolcreatedb:bool
  rolcanlogin:bool rolreplication:bool rolconnlimit:int4 rolpassword rolvaliduntil:timestamptz
  rolbypassrls:bool rolconfig:_text oid:oid
pg_rules
  schemaname:name tablename:name rulename:name definition
pg_sequence
  seqrelid:oid seqtypid:oid seqstart:int8 seqincrement:int8 seqmax:int8 seqmin:int8
  seqcache:int8 seqcycle:bool
pg_sequences
  schemaname:name sequencename:name sequenceowner:name data_type:oid start_value:int8
  min_value:int8 max_value:int8 increment_by:int8 cycle:bool cache_size:int8 last_value:int8
pg_settings
  name setting unit category short_desc extra_desc context vartype source min_val max_val
  enumvals:_text boot_val reset_val sourcefile sourceline:int4 pending_restart:bool
pg_shdepend
  dbid:oid classid:oid objid:oid objsubid:int4 refclassid:oid refobjid:oid deptype:char
pg_shdescription
  objoid:oid classoid:oid description
pg_stat_activity
  datid:oid datname:name pid:int4 leader_pid:int4 usesysid:oid usename:name application_name
  client_addr client_hostname client_port:int4 backend_start:timestamptz xact_start:timestamptz
  query_start:timestamptz state_change:timestamptz wait_event_type wait_event state
  backend_xid:xid backend_xmin:xid query_id:int8 query backend_type
pg_stat_user_tables
  relid:oid schemaname:name relname:name seq_scan:int8 seq_tup_read:int8 idx_scan:int8
  idx_tup_fetch:int8 n_tup_ins:int8 n_tup_upd:int8 n_tup_del:int8 n_tup_hot_upd:int8
  n_live_tup:int8 n_dead_tup:int8 n_mod_since_analyze:int8 n_ins_since_vacuum:int8
  last_vacuum:timestamptz last_autovacuum:timestamptz last_analyze:timestamptz
  last_autoanalyze:timestamptz vacuum_count:int8 autovacuum_count:int8 analyze_count:int8
  autoanalyze_count:int8
pg_statistic_ext
  oid:oid stxrelid:oid stxname:name stxnamespace:oid stxowner:oid stxstattarget:int4
  stxkeys:int2vector stxkind:_char stxexprs
pg_tables
  schemaname:name tablename:name tableowner:name tablespace:name hasindexes:bool hasrules:bool
  hastriggers:bool rowsecurity:bool
pg_tablespace
  oid:oid spcname:name spcowner:oid spcacl:_text spcoptions:_text
pg_timezone_names
  name abbrev utc_offset is_dst:bool
pg_trigger
  oid:oid tgrelid:oid tgparentid:oid tgname:name tgfoid:oid tgtype:int2 tgenabled:char
  tgisinternal:bool tgconstrrelid:oid tgconstrindid:oid tgconstraint:oid tgdeferrable:bool
  tginitdeferred:bool tgnargs:int2 tgattr:int2vector tgargs:bytea tgqual tgoldtable:name
  tgnewtable:name
pg_type
  oid:oid typname:name typnamespace:oid typowner:oid typlen:int2 typbyval:bool typtype:char
  typcategory:char typispreferred:bool typisdefined:bool typdelim:char typrelid:oid typsubscript
  typelem:oid typarray:oid typinput typoutput typreceive typsend typmodin typmodout typanalyze
  typalign:char typstorage:char typnotnull:bool typbasetype:oid typtypmod:int4 typndims:int4
  typcollation:oid typdefaultbin typdefault typacl:_text
pg_user
  usename:name usesysid:oid usecreatedb:bool usesuper:bool userepl:bool usebypassrls:bool passwd
  valuntil:timestamptz useconfig:_text
pg_user_mapping
  oid:oid umuser:oid umserver:oid umoptions:_text
pg_user_mappings
  umid:oid srvid:oid srvname:name umuser:oid usename:name umoptions:_text
pg_views
  schemaname:name viewname:name viewowner:name definition
"""
